"""Comparisons that a verdict keeps: the sides that its rule looked at, for the report."""

import json
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bipolar.lab.reproduce.comparisons import Comparison, Margin, compare, difference
from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.tables import Entry
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, MissingError, Verdict
from tests.helpers.records import record, table1_results

MARGIN = Margin(0.02, 0.05, "BPC", paper=0.01)
NUMBERS = st.floats(-1e6, 1e6)
VALUES = st.lists(NUMBERS | st.just(DNC), min_size=1, max_size=4)


def belu_and_relu(e: Evidence) -> tuple[Entry, Entry]:
    belu, relu = (e.entry("table1", "36", name, "valid_bpc") for name in ("belu", "relu"))
    return belu, relu


def decide(e: Evidence) -> Verdict:
    belu, relu = belu_and_relu(e)
    e.show(relu)
    return Verdict("reproduced" if e.compare(belu, relu, MARGIN) == "below" else "not reproduced", "because")


CLAIM = Claim("a", "A claim.", OURS, ("table1",), "a rule", decide)
RECORDS = {"table1": record("table1", table1_results(), table1_results(relu=2.1))}


def test_a_verdict_keeps_what_its_rule_compared() -> None:
    evidence = Evidence(RECORDS)
    for _ in range(2):  # the second time it has not more
        shown, compared = CLAIM.verdict(evidence).comparisons
        assert (shown.side.name, shown.side.quantity, shown.rival) == ("36, relu", "validation BPC", None)
        assert [side.name for side in compared.sides] == ["36, belu", "36, relu"]
        assert [list(side.ours) for side in compared.sides] == [[1.9, 1.9], [2.0, 2.1]]
        assert (compared.order, compared.margin, compared.width) == ("below", MARGIN, 0.02)
    assert evidence.comparisons == []


def test_it_does_so_where_the_scale_is_too_small_and_where_a_result_is_missing() -> None:
    quick = {"table1": {**RECORDS["table1"], "scale": "quick"}}
    verdict = CLAIM.verdict(Evidence(quick))
    assert (verdict.status, len(verdict.comparisons)) == ("not decided", 2)

    def breaks_off(e: Evidence) -> Verdict:
        e.show(belu_and_relu(e)[0])
        raise MissingError("nothing more")

    for records in (RECORDS, quick):
        claim = Claim("a", "A claim.", OURS, ("table1",), "a rule", breaks_off)
        assert len(claim.verdict(Evidence(records)).comparisons) == 1


def test_a_side_is_not_compared_with_itself() -> None:
    evidence = Evidence(RECORDS)
    belu, _ = belu_and_relu(evidence)
    assert evidence.compare(belu, belu, MARGIN) == "equal"
    assert evidence.comparisons == []


def test_verdicts_are_equal_whatever_was_shown() -> None:
    assert Verdict("reproduced", "a", (Comparison(Entry([1.0])),)) == Verdict("reproduced", "a")


@given(a=VALUES, b=VALUES, seeds=st.booleans(), margin=st.none() | st.just(Margin(0.1, 0.2, "BPC")))
def test_as_json_and_back(a: list[float | str], b: list[float | str], seeds: bool, margin: Margin | None) -> None:
    side, rival = (
        Entry(tuple(v), seeds=tuple(map(str, range(len(v)))) if seeds else (), name="n", quantity="q") for v in (a, b)
    )
    order = None if margin is None else compare(side, rival, margin)
    for comparison in (Comparison(side, rival, margin, order), Comparison(side)):
        assert Comparison.from_json(json.loads(json.dumps(comparison.to_json()))) == comparison


@given(pairs=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=6))
def test_the_difference_is_that_of_the_pairs(pairs: list[tuple[float, float]]) -> None:
    seeds = tuple(map(str, range(len(pairs))))
    a, b = (Entry(values, seeds=seeds) for values in zip(*pairs, strict=True))
    apart = [x - y for x, y in pairs]
    found, error = difference(a, b)
    assert found == pytest.approx(statistics.fmean(apart), abs=1e-6)
    assert error == pytest.approx(statistics.stdev(apart) / math.sqrt(len(apart)), abs=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "width"),
    [([1.0], [2.0], 0.05), ([1.0, 1.1], [2.0, 2.1], 0.02), ([DNC], [2.0], None), ([1.0], [DNC], None)],
)
def test_the_margin_is_that_of_the_number_of_seeds(
    a: list[float | str], b: list[float | str], width: float | None
) -> None:
    comparison = Comparison(Entry(a), Entry(b), MARGIN, "unclear")
    assert comparison.width == width
    assert (comparison.difference is None) == (width is None)
    assert Comparison(Entry(a), Entry(b)).width is None


def test_an_interval_is_two_standard_errors_unless_it_is_given() -> None:
    assert Entry([1.0, 3.0]).interval == pytest.approx((0.0, 4.0))
    assert Entry([1.0]).interval == Entry([DNC, DNC]).interval == ()
    assert Entry([1.0], bounds=(0.5, 2.0)).interval == (0.5, 2.0)
