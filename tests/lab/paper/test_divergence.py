"""Divergence before training: counts, their test, and the verdicts."""

from typing import Any

import pytest
from scipy.stats import fisher_exact

from bipolar.lab.paper import divergence
from bipolar.lab.reproduce.verdicts import Evidence


def test_a_stack_that_grows_and_one_that_does_not() -> None:
    """At 36 layers of 64 units a share of the ReLU stacks explodes; second moments of BReLU stay near 1."""
    relu, brelu = (
        [divergence.extremes(divergence.STARTS[name], 36, 64, seed)[1] for seed in range(1, 7)]
        for name in ("relu", "brelu")
    )
    assert max(relu) > divergence.HIGHEST > 10 > max(brelu)
    assert min(brelu) > 0.5


@pytest.mark.parametrize("seeds", [3, 20])
def test_fishers_exact_test_is_scipys(seeds: int) -> None:
    for more in range(seeds + 1):
        for fewer in range(seeds + 1):
            table = [[more, seeds - more], [fewer, seeds - fewer]]
            expected = fisher_exact(table, alternative="greater").pvalue
            assert divergence.chance(more, fewer, seeds) == pytest.approx(expected)


def test_the_interval_contains_its_share() -> None:
    assert divergence._interval(0, 20)[0] == 0
    assert divergence._interval(0, 20)[1] == pytest.approx(0.161, abs=0.001)
    assert divergence._interval(20, 20)[1] == 1
    low, high = divergence._interval(5, 20)
    assert low < 0.25 < high


@pytest.mark.parametrize(
    ("plain", "flipped", "status"),
    [(8, 0, "reproduced"), (0, 0, "not decided"), (3, 3, "not decided"), (0, 8, "not reproduced")],
)
@pytest.mark.parametrize(("name", "pair"), [("exploding relu", ("relu", "brelu")), ("exploding elu", ("elu", "belu"))])
def test_the_counts_decide(plain: int, flipped: int, status: str, name: str, pair: tuple[str, str]) -> None:
    counts: dict[str, Any] = {start: {"left": 0, "seeds": 20} for start in divergence.STARTS}
    counts[pair[0]]["left"], counts[pair[1]]["left"] = plain, flipped
    shallow: dict[str, Any] = {start: {"left": 20, "seeds": 20} for start in divergence.STARTS}  # does not count
    results = {"36x64": counts, "4x64": shallow}
    evidence = Evidence({"divergence": {"scale": "small", "complete": True, "results": results}})
    claim = next(claim for claim in divergence.CLAIMS if claim.name == name)
    assert claim.verdict(evidence).status == status
