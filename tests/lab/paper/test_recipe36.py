"""The search for a recipe: one change at a time, in as many steps, and verdicts either way."""

from pathlib import Path
from typing import Any

import pytest

from bipolar.lab.paper import rates36, recipe36
from bipolar.lab.paper.recipe36 import BEST, PAPER
from bipolar.lab.reproduce.trials import trial_of
from bipolar.lab.reproduce.verdicts import Evidence, Status
from tests.helpers.items import reproduce
from tests.helpers.records import record

CLAIMS = {claim.name: claim for claim in recipe36.CLAIMS}
RULED, WHOLE, QUARTER = (f"wider, {share:g} of the best rate: {share * BEST:g}" for share in (0.5, 1, 0.25))
NAMES = {
    "best": f"Adam {BEST:g}",
    "half": f"Adam {BEST / 2:g}",
    "twice": f"Adam {2 * BEST:g}",
    "paper": PAPER,
    "ruled": RULED,
    "whole": WHOLE,
    "quarter": QUARTER,
    "muon": "Muon 0.02",
    "low_muon": "Muon 0.01",
    "high_muon": "Muon 0.04",
    "wider_muon": "wider, Muon 0.02",
    "wider_low": "wider, Muon 0.01",
    "wider_high": "wider, Muon 0.04",
    "big_adam": "the paper's size, Adam",
    "big_muon": "the paper's size, Muon",
}


@pytest.mark.parametrize("scale", ["quick", "small", "paper"])
def test_all_runs_take_as_many_steps(scale: Any) -> None:
    runs, base = recipe36.runs(scale), rates36.base(scale)
    for config in runs.values():
        config.check()
        assert config.length == base.length
    assert len({trial_of(config, Path()).directory for config in runs.values()}) == len(runs)
    if scale == "small":
        assert {config.model.hidden_size for name, config in runs.items() if "wider" in name} == {128}
        assert {config.model.hidden_size for name, config in runs.items() if "paper's size" in name} == {256}
        assert set(NAMES.values()) <= set(runs)
        assert runs[f"Adam {BEST:g}"].to_json() == rates36.runs(scale)[f"belu: {BEST:g}"].to_json()  # they share it


def results(**errors: float | str) -> dict[str, Any]:
    found = dict.fromkeys(NAMES, 1.8) | {"paper": 2.2, "ruled": 1.7, "big_muon": 1.6} | errors
    return {name: {"valid_bpc": found[key], "characters": 1.92, "seconds": 60.0} for key, name in NAMES.items()}


@pytest.mark.parametrize(
    ("claim", "errors", "status"),
    [
        ("fast recipe", {}, "reproduced"),
        ("fast recipe", {"paper": 1.8}, "not reproduced"),
        ("fast recipe", {"best": 2.5}, "not reproduced"),
        ("rate by width", {}, "reproduced"),
        ("rate by width", {"whole": 1.7, "quarter": 1.7}, "reproduced"),
        ("rate by width", {"whole": 1.5}, "not reproduced"),
        ("rate by width", {"quarter": 1.5}, "not reproduced"),
        ("rate by width", {"whole": "did not converge"}, "reproduced"),
        ("rate by width", {"twice": 1.5}, "not decided"),  # it may not have been the best rate
        ("rate of Muon by width", {}, "reproduced"),
        ("rate of Muon by width", {"wider_low": 1.5}, "not reproduced"),
        ("rate of Muon by width", {"wider_high": 1.5}, "not reproduced"),
        ("rate of Muon by width", {"low_muon": 1.5}, "not decided"),
        ("Muon at the paper's size", {}, "reproduced"),
        ("Muon at the paper's size", {"big_muon": 1.8}, "not reproduced"),
        ("Muon at the paper's size", {"big_muon": "did not converge"}, "not reproduced"),
    ],
)
def test_verdicts(claim: str, errors: dict[str, Any], status: Status) -> None:
    seeds = [results(**errors) for _ in range(3)]
    assert CLAIMS[claim].verdict(Evidence({"recipe36": record("recipe36", *seeds)})).status == status


def test_it_runs(tmp_path: Path) -> None:
    found = reproduce(recipe36.ITEM, tmp_path)
    assert set(found["results"]) == {PAPER, f"Adam {BEST:g}"}
    assert (tmp_path / "recipe36.svg").exists()
    assert {claim.verdict(Evidence({"recipe36": found})).status for claim in recipe36.CLAIMS} == {"not decided"}
    assert "Adam 0.008" in (tmp_path / "recipe36.json").read_text()
