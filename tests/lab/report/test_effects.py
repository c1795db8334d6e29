"""The small pictures of effects: everything is in its place, and in words."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bipolar.lab.report.effects import LANE, LEFT, MOST, RIGHT, WIDTH, apart_of, in_words, lane, mean_of
from bipolar.lab.reproduce.comparisons import Comparison, Margin, compare
from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.tables import Entry

VALUES = st.lists(st.floats(-1e300, 1e300) | st.just(DNC), min_size=1, max_size=5)
MARGIN = Margin(0.02, 0.05, "BPC")


def comparison(a: list[float | str], b: list[float | str], margin: Margin | None = MARGIN) -> Comparison:
    side, rival = (
        Entry(tuple(values), seeds=tuple(map(str, range(len(values)))), name=name, quantity="validation BPC")
        for name, values in (("belu", a), ("elu", b))
    )
    return Comparison(side, rival, margin, None if margin is None else compare(side, rival, margin))


def parts(side: Entry, of: Comparison, kind: str) -> list[dict[str, str]]:
    root = ElementTree.fromstring(lane(side, of))  # noqa: S314 - our own text
    return [part.attrib for part in root if kind in part.attrib["class"].split() or part.tag == kind]


@given(a=VALUES, b=VALUES, with_margin=st.booleans())
def test_dots_lie_in_the_order_of_their_values(a: list[float | str], b: list[float | str], with_margin: bool) -> None:
    made = comparison(a, b, MARGIN if with_margin else None)
    dots = []
    for side in made.sides:
        circles = parts(side, made, "circle")
        assert len(circles) == len(side.numbers)
        assert len(parts(side, made, "cross")) == min(len(side.ours) - len(side.numbers), MOST)
        dots += [(value, float(c["cx"])) for value, c in zip(side.numbers, circles, strict=True)]
    assert all(LEFT <= x <= RIGHT for _, x in dots)
    dots.sort()
    assert [x for _, x in dots] == sorted(x for _, x in dots)
    numbers = [float(n) for side in made.sides for n in re.findall(r'[xy12]="([-.\d]+)"', lane(side, made))]
    assert all(0 <= n <= max(WIDTH, LANE) for n in numbers)
    in_words(made)  # has words for everything


def test_the_band_is_the_margin_around_the_rival() -> None:
    made = comparison([1.0], [1.2])  # 1.0 to 1.25, as the margin of one seed is 0.05
    (band,) = parts(made.side, made, "margin")
    scale = (RIGHT - LEFT) / 0.25
    assert float(band["width"]) == pytest.approx(0.1 * scale, abs=0.1)
    assert float(band["x"]) == pytest.approx(LEFT + 0.15 * scale, abs=0.1)
    assert parts(made.side, made, "stem") == []


def test_without_a_margin_the_scale_begins_at_zero() -> None:
    made = comparison([1.0], [2.0], None)
    (stem,) = parts(made.side, made, "stem")
    assert float(stem["x1"]) == LEFT
    assert float(stem["x2"]) == pytest.approx((LEFT + RIGHT) / 2, abs=0.1)
    share = Comparison(Entry([25.0], name="a", quantity="stacks (%)", bounds=(10.0, 40.0)))
    (dot,), (bar,) = parts(share.side, share, "circle"), parts(share.side, share, "interval")
    assert [float(x) for x in (bar["x1"], dot["cx"], bar["x2"])] == pytest.approx(
        [LEFT + part * (RIGHT - LEFT) for part in (0.1, 0.25, 0.4)], abs=0.1
    )


def test_close_values_have_a_scale_of_their_own() -> None:
    made = comparison([1.92, 1.93], [1.94, 1.95], None)
    assert parts(made.side, made, "stem") == []
    dots = [float(dot["cx"]) for side in made.sides for dot in parts(side, made, "circle")]
    assert max(dots) - min(dots) > 0.2 * (RIGHT - LEFT)


def test_the_effect_in_words() -> None:
    several = comparison([1.0, 1.002, DNC], [1.1, 1.104, 1.102])
    assert (
        apart_of(several) == "where both converge −0.101 ± 0.002 BPC, too close to tell (margin 0.02)"
    )  # as a seed did not converge
    assert mean_of(several.side, several) == f"1.001, 1 of 3 {DNC}"
    assert in_words(several) == (
        f"validation BPC, 3 seeds: belu 1.001, 1 of 3 {DNC}, elu 1.102: "
        "where both converge −0.101 ± 0.002 BPC, too close to tell (margin 0.02)"
    )
    assert apart_of(comparison([1.0], [1.2])) == "−0.200 BPC, lower (margin 0.05)"
    assert apart_of(comparison([1.0], [1.01])) == "−0.010 BPC, equal (margin 0.05)"
    assert apart_of(comparison([1.0], [DNC])) == "lower"
    assert apart_of(comparison([3e-7], [0.0], None)) == "+3e-07"
    assert apart_of(comparison([2.0], [2.0], None)) == "0.000"
    alone = Comparison(Entry([2.5], name="elu"))
    assert (apart_of(alone), in_words(alone)) == ("", "elu 2.500")
    assert mean_of(Entry([DNC]), alone) == DNC
