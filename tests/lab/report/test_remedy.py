"""Remedies: an open claim names the runs that would decide it; any other verdict stays as it is."""

import re

import pytest

from bipolar.lab.paper import ITEMS
from bipolar.lab.report.remedy import with_remedy
from bipolar.lab.reproduce.verdicts import Evidence, Verdict

CLAIMS = {claim.name: claim for item in ITEMS.values() for claim in item.claims}
OPEN = Verdict("not decided", "noise")


def test_without_runs_the_smallest_scale_that_can_tell() -> None:
    assert with_remedy(CLAIMS["depth"], OPEN, Evidence({})).reason == (
        "noise; it would take bipolar reproduce table1 --scale small"
    )


def test_with_runs_the_scale_of_the_paper_and_its_cost() -> None:
    reason = with_remedy(CLAIMS["depth"], OPEN, Evidence({"table1": {"complete": True}})).reason
    # 797 steps of 50 x 128 characters, 200 epochs, three seeds: six operations for each weight of U and W
    least = 3 * 200 * 797 * 50 * 128 * 6 * 25 * 4.7e6
    petaflop = float(reason.partition("--scale paper, ")[2].partition(" petaFLOP")[0].replace(",", "")) * 1e15
    assert least < petaflop < 2 * least
    assert re.search(r"petaFLOP, 40 h \d\d min of a GPU at 20 teraFLOP/s", reason), reason


@pytest.mark.parametrize("name", ["symmetry", "exploding elu"])
def test_nothing_for_computations(name: str) -> None:
    assert with_remedy(CLAIMS[name], OPEN, Evidence({})) == OPEN


def test_nothing_for_what_is_decided() -> None:
    decided = Verdict("not reproduced", "a clear difference")
    assert with_remedy(CLAIMS["depth"], decided, Evidence({})) == decided
