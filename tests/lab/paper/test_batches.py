"""The study of batches: its runs, and verdicts either way."""

from typing import Any

import pytest

from bipolar.lab.paper import batches
from bipolar.lab.reproduce.verdicts import Evidence, Status

CLAIMS = {claim.name: claim for claim in batches.CLAIMS}


def evidence(without: dict[str, Any], norm: dict[str, Any], faster: dict[str, Any] | None = None) -> Evidence:
    """Three seeds with the errors of each batch, a little apart."""
    by_seed = {
        str(seed): {
            kind: {b: {"test_error": e if isinstance(e, str) else e + 0.1 * seed} for b, e in row.items()}
            for kind, row in ((batches.NONE, without), (batches.BATCH_NORM, norm), (batches.FASTER, faster or norm))
        }
        for seed in (1, 2, 3)
    }
    return Evidence({"batches": {"scale": "small", "complete": True, "by_seed": by_seed, "results": by_seed["1"]}})


def test_the_two_of_a_pair_differ_in_the_norm_alone() -> None:
    for scale in ("quick", "small", "paper"):
        runs = batches.runs(scale)
        for name, config in runs.items():
            config.check()
            norm, _, batch = name.partition(": ")
            assert (config.model.norm == "batch") is (norm != batches.NONE)
            twin, factor = runs[f"{batches.NONE}: {batch}"], 8 if norm == batches.FASTER else 1
            assert (factor * twin.lr, twin.batch_size, twin.length) == (config.lr, config.batch_size, config.length)
            assert (config.classes_per_batch == 2) is ("classes" in batch)


@pytest.mark.parametrize("claim", ["small batches", "unfair batches"])
@pytest.mark.parametrize(
    ("without", "norm", "status"),
    [
        (40.0, 60.0, "reproduced"),
        (60.0, 40.0, "not reproduced"),
        (40.0, "did not converge", "reproduced"),
        ("did not converge", 40.0, "not reproduced"),
        (40.0, 40.2, "not reproduced"),
    ],
)
def test_verdicts(claim: str, without: Any, norm: Any, status: Status) -> None:
    names = ("2", batches.FEW)
    found = evidence(dict.fromkeys(names, without), dict.fromkeys(names, norm))
    assert CLAIMS[claim].verdict(found).status == status


def test_batch_norm_counts_at_its_better_rate() -> None:
    for slow, fast in ((60.0, 30.0), (30.0, 60.0), ("did not converge", 30.0), (30.0, "did not converge")):
        found = evidence({"2": 40.0}, {"2": slow}, {"2": fast})
        assert CLAIMS["small batches"].verdict(found).status == "not reproduced"


def test_a_picture_with_a_run_that_did_not_converge() -> None:
    found = evidence({"2": 40.0, batches.FEW: 40.0}, {"2": "did not converge", batches.FEW: 80.0})
    figure = batches.draw(found.seeds("batches"))
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [
        "no norm",
        "batch norm",
        "batch norm, eight times the rate",
    ]
