"""The curve of Text8: lengths that double, and verdicts either way from the law through them."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from bipolar.lab.paper import curve8
from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.verdicts import Evidence, Status
from tests.helpers.items import reproduce
from tests.helpers.records import record

HOLDS, PASSES = curve8.CLAIMS
LENGTHS = (0.8, 1.6, 3.2, 6.4, 12.8)


def verdict(claim: Any, errors: list[float | str]) -> Status:
    runs = [
        {"characters": x, "epoch": 66.7, "valid_bpc": error, "test_bpc": error, "seconds": 1.0}
        for x, error in zip(LENGTHS, errors, strict=True)
    ]
    results = {f"{place} steps": run for place, run in enumerate(runs)}
    status: Status = claim.verdict(Evidence({"curve8": record("curve8", results)})).status
    return status


def law(exponent: float, *off: float) -> list[float | str]:
    return [2.4 * x**exponent + e for x, e in zip(LENGTHS, off or (0.01, -0.01, 0.0, 0.01, 0.0), strict=True)]


@pytest.mark.parametrize(
    ("claim", "errors", "status"),
    [
        (HOLDS, law(-0.1), "reproduced"),
        (HOLDS, law(-0.1, 0.01, -0.01, 0.01, -0.01, 0.4), "not reproduced"),
        (HOLDS, [1.5, 1.6, 1.7, 1.8, 1.92], "not reproduced"),  # a law, but a rising one
        (HOLDS, [2.4, 1.8, 2.3, 1.7, 2.2], "not reproduced"),
        (HOLDS, [3.2, 2.2, 1.8, 1.75, 1.74], "not reproduced"),
        (HOLDS, [2.4, 2.24, 2.09, 1.95, DNC], "not reproduced"),
        (HOLDS, [2.4, 2.3, DNC, DNC, DNC], "not decided"),
        (PASSES, [2.4, 2.24, 2.09, 1.95, DNC], "not decided"),
        (PASSES, [3.2, 2.2, 1.8, 1.75, 1.74], "not decided"),
        (PASSES, law(-0.14), "reproduced"),
        (PASSES, law(-0.05), "not reproduced"),
        (PASSES, law(-0.113), "not decided"),
    ],
)
def test_verdicts(claim: Any, errors: list[float | str], status: Status) -> None:
    assert verdict(claim, errors) == status


def test_it_runs(tmp_path: Path) -> None:
    found = reproduce(curve8.ITEM, tmp_path)["results"]
    lengths = [run["characters"] for run in found.values()]
    assert lengths == sorted(lengths)
    assert all(later == pytest.approx(2 * before) for before, later in itertools.pairwise(lengths))
    assert (tmp_path / "curve8.svg").exists()
    measured, predicted = curve8.tables([found])
    assert len(measured.rows) == len(found)
    assert len(predicted.rows) == 1  # the size of that text is its own matter
    of_known_size = {name: run | {"epoch": 66.7} for name, run in found.items()}
    assert len(curve8.tables([of_known_size])[1].rows) == 2
