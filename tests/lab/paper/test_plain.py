"""The study of a plain network: one ingredient at a time, and verdicts either way."""

from typing import Any

import pytest

from bipolar.lab.paper import plain
from bipolar.lab.reproduce.verdicts import Evidence, Status

CLAIMS = {claim.name: claim for claim in plain.CLAIMS}


def verdict(claim: str, errors: dict[str, Any]) -> Status:
    """The verdict where all variants have an error of 20 in three seeds, but for those that are given."""
    values = dict.fromkeys(plain.VARIANTS, 20.0) | errors
    by_seed = {
        str(seed): {n: {"test_error": e if isinstance(e, str) else e + 0.1 * seed} for n, e in values.items()}
        for seed in (1, 2, 3)
    }
    record = {"scale": "small", "complete": True, "by_seed": by_seed, "results": by_seed["1"]}
    return CLAIMS[claim].verdict(Evidence({"plain": record})).status


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_each_variant_differs_by_its_ingredient(scale: Any) -> None:
    runs = plain.runs(scale)
    for name, config in runs.items():
        config.check()
        assert (config.model.norm == "batch") is name.startswith("batch norm")
        assert config.length == runs[plain.BEST].length
    flat = {
        name: {"whiten": c.model.whiten, "head": c.model.head, "gain": c.gain, "adam_lr": c.update.adam_lr}
        for name, c in runs.items()
    }
    for ingredient, (_, key) in plain.OF_ALL.items():
        one = flat[f"no norm, no {ingredient}"]
        assert {k for k in one if one[k] != flat[plain.BEST][k]} == {key}
    assert len({tuple(flat["no norm, pinned"].items()), tuple(flat[plain.BEST].items())}) == 2
    assert plain.BEST in plain.runs("quick")


@pytest.mark.parametrize(
    ("error", "status"),
    [(20.5, "reproduced"), (18.0, "reproduced"), (22.0, "not reproduced"), ("did not converge", "not decided")],
)
def test_near(error: Any, status: Status) -> None:
    assert (
        verdict("plain network near", {name: error for name in plain.VARIANTS if name.startswith("no norm")}) == status
    )


def test_the_best_of_each_counts() -> None:
    assert verdict("plain network near", {"batch norm, Muon": 18.0}) == "not reproduced"
    assert verdict("plain network near", {"batch norm, Muon": 18.0, "no norm, pinned": 18.5}) == "reproduced"


@pytest.mark.parametrize(
    ("error", "status"), [(23.0, "reproduced"), (20.3, "not reproduced"), (18.0, "not reproduced")]
)
def test_ingredients(error: float, status: Status) -> None:
    assert verdict("ingredients", {"no norm, pinned": error}) == status
