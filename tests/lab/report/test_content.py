from typing import Any

from bipolar.lab.paper import ITEMS
from bipolar.lab.report.content import Section
from tests.helpers.records import record, table1_results


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


def test_a_heading_names_the_data_that_were_used() -> None:
    def section(item: str, data: str, scale: str) -> Section:
        return Section(
            ITEMS[item], record(item, table1_results(), scale=scale, runs={"a": {"config": {"data": data}}}), ()
        )

    there, here = section("table1", "ptb", "small"), section("table1", "python-docs", "quick")
    assert there.title == ITEMS["table1"].title
    assert here.title == f"{there.title}, here on Python's documentation"
    assert any(entry.difference for row in there.tables[0].rendered.values() for entry in row)
    assert not any(entry.difference for row in here.tables[0].rendered.values() for entry in row)
    assert any(entry.published for row in here.tables[0].rendered.values() for entry in row)
    assert section("table3", "text8-74M", "small").title.endswith(", here on the first 74 million characters of Text8")
    computed = record("figure4", {}, configuration={"data": "python-docs"})
    assert Section(ITEMS["figure4"], computed, ()).title.endswith(", here on Python's documentation")
    assert not Section(ITEMS["figure2"], record("figure2", {}, configuration={"units": 8}), ()).other_data
