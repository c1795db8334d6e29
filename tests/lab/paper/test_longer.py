"""The study of longer training and deeper networks: equal steps within each, and verdicts either way."""

from typing import Any

import pytest

from bipolar.lab.paper import longer, normfree
from bipolar.lab.reproduce.verdicts import Evidence, Status
from tests.helpers.records import record

CLAIMS = {claim.name: claim for claim in longer.CLAIMS}


@pytest.mark.parametrize("scale", ["quick", "small", "paper"])
def test_runs_of_a_setting_differ_by_the_norm_and_the_rate(scale: Any) -> None:
    runs, base = longer.runs(scale), normfree.base(scale)
    for name, config in runs.items():
        config.check()
        assert (config.model.norm is None) is ("no norm" in name)
        longer_by = config.length.max_epochs / base.length.max_epochs
        assert (longer_by, config.model.depth - base.model.depth) in (
            [(3, 0), (4, 0)] if "longer" in name else [(1, 6)]
        )
    settings = {name.partition(":")[0] for name in runs}
    assert settings == ({"longer"} if scale == "quick" else {"longer", "deeper"})


@pytest.mark.parametrize("setting", ["longer", "deeper"])
@pytest.mark.parametrize(
    ("error", "status"),
    [(15.0, "reproduced"), (19.5, "not reproduced"), (25.0, "not reproduced"), ("did not converge", "not decided")],
)
def test_ahead(setting: str, error: float | str, status: Status) -> None:
    def seed(number: int) -> dict[str, Any]:
        errors: dict[str, float | str] = {"no norm, pinned": error, "batch norm, rate 0.4": 30.0}
        errors |= {"batch norm, rate 0.1": 20.0}
        return {
            f"{setting}: {kind}": {"test_error": value if isinstance(value, str) else value + 0.1 * number}
            for kind, value in errors.items()
        }

    evidence = Evidence({"longer": record("longer", *map(seed, (1, 2, 3)))})
    assert CLAIMS[f"ahead {setting}"].verdict(evidence).status == status
