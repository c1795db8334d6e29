"""Comparisons of entries, and the words of verdicts."""

from collections.abc import Callable, Sequence

import pytest

from bipolar.lab.reproduce.comparisons import Margin, Order, compare
from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.tables import Entry
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict
from tests.helpers.records import record

MARGIN = Margin(0.02, 0.05, "BPC", paper=0.01)
Values = Sequence[float | str]
REVERSE: dict[Order, Order] = {"below": "above", "above": "below", "equal": "equal", "unclear": "unclear"}


def entry(values: Values) -> Entry:
    """Values of the seeds 1, 2, …"""
    return Entry(values, seeds=[str(seed + 1) for seed in range(len(values))])


def test_a_comparison_needs_a_margin_and_with_seeds_two_standard_errors() -> None:
    for a, b, order in (
        ([1.0], [1.1], "below"),
        ([1.1], [1.0], "above"),
        ([1.0], [1.04], "unclear"),  # one seed
        ([1.0], [1.01], "equal"),
        ([1.0, 1.001], [1.03, 1.031], "below"),
        ([1.0, 2.0], [2.0, 3.0], "unclear"),  # 1 apart, by a standard error of 0.7
        ([1.0, 1.001], [1.0, 1.002], "equal"),
        ([1.0, 1.05], [1.0, 1.05], "unclear"),  # too noisy to be called equal
        ([1.0], [DNC], "below"),
        ([DNC], [1.0], "above"),
        ([DNC], [DNC], "unclear"),
        ([1.0, DNC], [2.0, 2.0], "unclear"),
    ):
        assert compare(Entry(a), Entry(b), MARGIN) == order, (a, b)


@pytest.mark.parametrize(
    ("a", "b", "order"),
    [
        # one side loses seeds
        ([1.0, 1.0, DNC], [1.0, 1.0, 1.0], "above"),
        ([1.1, 1.1, DNC], [1.0, 1.0, 1.0], "above"),
        ([1.0, 1.03, DNC], [1.0, 1.0, 1.0], "above"),  # the means alone would be unclear
        ([0.9, 0.9, DNC], [1.0, 1.0, 1.0], "unclear"),
        ([1.0, DNC, DNC], [1.0, 1.0, 1.0], "above"),
        # both do
        ([1.0, 1.0, DNC], [1.1, DNC, 1.1], "below"),
        ([1.0, 1.0, DNC], [1.0, DNC, 1.0], "equal"),
        ([1.2, DNC, DNC], [1.0, 1.0, DNC], "above"),
        ([1.0, DNC, DNC], [1.2, 1.2, DNC], "unclear"),
        ([1.0, DNC, DNC], [1.0, 1.0, DNC], "unclear"),
        # all seeds of a side
        ([DNC, DNC, DNC], [1.0, 1.0, 1.0], "above"),
        ([DNC, DNC, DNC], [9.0, DNC, DNC], "above"),
        ([DNC, DNC, DNC], [DNC, DNC, DNC], "unclear"),
    ],
)
@pytest.mark.parametrize("of", [Entry, entry])
def test_seeds_that_diverge_are_evidence(a: Values, b: Values, order: Order, of: Callable[[Values], Entry]) -> None:
    assert compare(of(a), of(b), MARGIN) == order
    assert compare(of(b), of(a), MARGIN) == REVERSE[order]


def test_seeds_that_two_sides_share_are_compared_in_pairs() -> None:
    noise = [1.0, 2.0, 3.0, 4.0]
    shifted = [value + shift for value, shift in zip(noise, (0.09, 0.1, 0.1, 0.11), strict=True)]
    assert compare(entry(noise), entry(shifted), MARGIN) == "below"
    assert compare(entry(noise), entry([value + 0.001 for value in noise]), MARGIN) == "equal"
    others = Entry(shifted, seeds=["5", "6", "7", "8"])
    for unpaired in (others, Entry(shifted), entry(shifted[:3])):
        assert compare(entry(noise), unpaired, MARGIN) == "unclear"
    # a seed in which one side diverges has no difference
    assert compare(entry([*noise, DNC]), entry([*shifted, DNC]), MARGIN) == "below"


def test_a_margin_depends_on_the_scale() -> None:
    one, another = Entry([1.318]), Entry([1.353])
    assert compare(one, another, MARGIN.at("small")) == "unclear"
    assert compare(one, another, MARGIN.at("paper")) == "below"
    assert compare(one, Entry([1.311]), MARGIN.at("paper")) == "equal"
    assert Margin(0.1, 0.2, "BPC").at("paper") == Margin(0.1, 0.2, "BPC")
    assert str(Margin(0.1, 0.2, "BPC")) == "0.2 BPC with one seed, 0.1 or two standard errors with several"
    assert str(MARGIN).startswith("0.05 BPC with one seed, 0.02 or two standard errors with several; 0.01 or two")


def test_a_verdict_opens_with_the_number_of_seeds() -> None:
    claim = Claim("a", "A claim.", OURS, ("table1",), "a rule", lambda e: Verdict("reproduced", "because"))
    for count, words in ((1, "one seed"), (2, "two seeds"), (3, "3 seeds")):
        small = claim.verdict(Evidence({"table1": record("table1", *[{}] * count)}))
        assert small.reason == f"{words}: because (scale: small)"
        paper = claim.verdict(Evidence({"table1": record("table1", *[{}] * count, scale="paper")}))
        assert paper.reason == f"{words}: because"
    computed = {name: value for name, value in record("table1", {}).items() if name != "by_seed"}
    assert claim.verdict(Evidence({"table1": computed})).reason == "because (scale: small)"
