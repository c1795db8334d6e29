from typing import Any

from bipolar.lab.paper import ITEMS
from bipolar.lab.report.content import Section
from tests.helpers.records import record


def test_a_section_says_what_its_runs_share_and_in_what_they_differ() -> None:
    def config(**of_model: Any) -> dict[str, Any]:
        return {"data": "ptb", "seed": 1, "max_steps": None, "log_every": 10, "model": of_model}

    runs = {
        "a": {"config": config(num_layers=4, skip_every=None, cell="stack", recompute=False)},
        "b": {"config": config(num_layers=36, skip_every=4, cell="stack", recompute=False)},
    }
    facts = Section(ITEMS["figure5"], record("figure5", {}, runs=runs), ()).facts
    assert facts["configuration"] == "data ptb, cell stack"
    assert facts["by run"] == "num layers 4 / 36, skip every None / 4"
    computed = Section(ITEMS["figure2"], record("figure2", {}, configuration={"units": 8}), ()).facts
    assert computed["configuration"] == "units 8"
    assert "by run" not in computed
