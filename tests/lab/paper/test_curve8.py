"""The curve of Text8: lengths that double, and verdicts either way from the law through them."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bipolar.lab.paper import curve8
from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.verdicts import Evidence, Status
from tests.helpers.items import reproduce
from tests.helpers.records import record

HOLDS, PASSES = curve8.CLAIMS
LENGTHS = (0.8, 1.6, 3.2, 6.4, 12.8)


def results_of(errors: list[float | str]) -> dict[str, Any]:
    runs = [
        {"characters": x, "epoch": 66.7, "valid_bpc": error, "test_bpc": error, "seconds": 1.0}
        for x, error in zip(LENGTHS, errors, strict=True)
    ]
    return {f"{place} steps": run for place, run in enumerate(runs)}


def verdict(claim: Any, errors: list[float | str]) -> Status:
    status: Status = claim.verdict(Evidence({"curve8": record("curve8", results_of(errors))})).status
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


@pytest.mark.parametrize(
    ("errors", "end"),
    [
        (law(-0.1), 66.7),
        (law(-0.1, 0.01, -0.01, 0.01, -0.01, 0.4), LENGTHS[-1]),
        ([1.5, 1.6, 1.7, 1.8, 1.92], LENGTHS[-1]),
    ],
)
def test_the_law_goes_on_to_an_epoch_only_if_it_holds(errors: list[float | str], end: float) -> None:
    seeds = [results_of(errors)]
    told = {"the longest run, by the shorter ones"}
    assert set(curve8.tables(seeds)[1].rows) == (told | {"one epoch"} if end == 66.7 else told)
    (axes,) = curve8.draw(seeds).axes
    (line,) = [line for line in axes.lines if str(line.get_label()).startswith("power law")]
    assert np.max(line.get_xdata()) == pytest.approx(end)
