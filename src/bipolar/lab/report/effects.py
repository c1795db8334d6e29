"""The effect behind a verdict: the sides that a claim compares, seed by seed, as a small picture within the page."""

import math
from collections.abc import Callable

from markupsafe import Markup

from bipolar.lab.reproduce.comparisons import Comparison, Order
from bipolar.lab.reproduce.tables import Entry

#: The picture of a side in units of its view box: its size, the part for numbers, and the place of seeds without one,
#: of which it shows a few.
WIDTH, LANE, LEFT, RIGHT, FAILED, MOST = 160.0, 16.0, 5.0, 132.0, 146.0, 3
#: The order of a side relative to its rival, in words.
WORDS: dict[Order, str] = {
    "below": "lower",
    "above": "higher",
    "equal": "equal",
    "unclear": "too close to tell",
}
#: Where there is no margin, values that differ by less than this share of their size have a scale of their own.
CLOSE = 0.1
#: Differences below it have an exponent, and so have numbers from the other on.
SMALLEST, LARGEST = 1e-4, 1e5


def in_words(comparison: Comparison) -> str:
    """The sides, for readers who cannot see the picture."""
    sides = ", ".join(f"{side.name} {mean_of(side, comparison)}" for side in comparison.sides)
    return ": ".join(part for part in (measured(comparison), sides, apart_of(comparison)) if part)


def measured(comparison: Comparison) -> str:
    """The quantity, and the number of seeds."""
    seeds = len([seed for seed in comparison.side.seeds if seed])
    return f"{comparison.side.quantity}, {seeds} seed{'s' if seeds > 1 else ''}" if seeds else comparison.side.quantity


def mean_of(side: Entry, comparison: Comparison) -> str:
    """The mean of a side, with the digits that tell it from its rival, and the number of seeds that have none."""
    failed = [value for value in side.ours if isinstance(value, str)]
    if side.mean is None:
        return failed[0] if failed else "no value"
    words = f", {len(failed)} of {len(side.ours)} {failed[0]}" if failed else ""
    return f"{_number(side.mean, _digits(comparison))}{words}"


def apart_of(comparison: Comparison) -> str:
    """The size of the effect: the difference of the means, its interval, the margin, and the order that follows."""
    order = WORDS[comparison.order] if comparison.order else ""
    if comparison.difference is None:
        return order
    (apart, noise), digits = comparison.difference, _digits(comparison)
    text = "where both converge " if comparison.in_common else ""
    text += _number(apart, digits, "+" if apart else "")
    if noise is not None:
        text += f" ± {_number(noise, digits)}"
    if comparison.margin is None or comparison.width is None:
        return text
    return f"{text} {comparison.margin.unit}{', ' if order else ''}{order} (margin {comparison.width:g})"


def lane(side: Entry, comparison: Comparison) -> Markup:
    """An SVG of a side: a dot for each seed, a bar for the interval, a line for the mean.

    Its colours are those of the page. All lanes of a comparison have one scale. The band is the margin around the
    rival's mean; where there is no margin, the scale begins at zero, and a line leads from there to the mean, unless
    that would hide how values differ. Seeds without a number stand at the right as crosses.
    """
    kind, rival = kind_of(side, comparison), comparison.rival
    place, y = _scale(comparison), LANE / 2
    parts = [_line("lane", LEFT, y, RIGHT, y)]
    if rival is not None and rival.mean is not None:
        if comparison.width is not None:
            low, high = place(rival.mean - comparison.width), place(rival.mean + comparison.width)
            parts.append(f'<rect class="margin" x="{low:.1f}" y="0" width="{high - low:.1f}" height="{LANE:g}"/>')
        parts.append(_line("zero", place(rival.mean), 0, place(rival.mean), LANE))
    if side.mean is not None and _begins_at_zero(comparison):
        parts.append(_line(f"stem {kind}", place(0.0), y, place(side.mean), y))
    if side.interval:
        low, high = (place(end) for end in side.interval)
        parts.append(_line(f"interval {kind}", low, y, high, y))
    parts += [f'<circle class="{kind}" cx="{place(value):.1f}" cy="{y:g}" r="3.2"/>' for value in side.numbers]
    if side.mean is not None and len(side.numbers) > 1:
        parts.append(_line(f"mean {kind}", place(side.mean), y - 6, place(side.mean), y + 6))
    failed = len(side.ours) - len(side.numbers)
    crosses = (FAILED + 7 * (i - (min(failed, MOST) - 1) / 2) for i in range(min(failed, MOST)))
    parts += [f'<path class="cross {kind}" d="M{x - 2.5:.1f} {y - 2.5:g}l5 5m0 -5l-5 5"/>' for x in crosses]
    # nothing in it comes from a run but numbers
    return Markup(f'<svg viewBox="0 0 {WIDTH:g} {LANE:g}" aria-hidden="true">{"".join(parts)}</svg>')  # noqa: S704


def kind_of(side: Entry, comparison: Comparison) -> str:
    """The class of a side in the page."""
    return "side" if side is comparison.side else "rival"


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:g}" x2="{x2:.1f}" y2="{y2:g}"/>'


def _values(comparison: Comparison) -> list[float]:
    """The values of all seeds, and the ends of intervals."""
    return [value for side in comparison.sides for value in (*side.numbers, *side.interval)]


def _begins_at_zero(comparison: Comparison) -> bool:
    """Whether sizes are shown, from zero on, and not differences alone; a share of a whole is a size."""
    values = [value for value in _values(comparison) if math.isfinite(value)]
    spread, largest = (max(values) - min(values), max(map(abs, values))) if len(values) > 1 else (0.0, 0.0)
    far = 0 < spread < CLOSE * largest and "(%)" not in comparison.side.quantity
    return comparison.width is None and not far


def _scale(comparison: Comparison) -> Callable[[float], float]:
    """From values to places in the picture, which holds all values, intervals, and the margin or zero.

    A share is shown on the way from none to all.
    """
    shown = _values(comparison)
    if _begins_at_zero(comparison):
        shown += [0.0, 100.0] if "(%)" in comparison.side.quantity else [0.0]
    elif comparison.width is not None and comparison.rival is not None and comparison.rival.mean is not None:
        shown += [comparison.rival.mean - comparison.width, comparison.rival.mean + comparison.width]
    finite = [value for value in shown if math.isfinite(value)]
    low, span = min(finite, default=0.0), max(finite, default=0.0) - min(finite, default=0.0)

    def place(value: float) -> float:
        if not math.isfinite(value):
            return RIGHT if value > 0 else LEFT
        share = (value - low) / span if 0 < span < math.inf else 0.0
        return LEFT + (RIGHT - LEFT) * min(max(share, 0.0), 1.0)

    return place


def _digits(comparison: Comparison) -> int:
    """The digits after the point that show the difference of the sides, and the margin, to two places."""
    if comparison.difference is None:
        return 3
    sizes = (abs(comparison.difference[0]), comparison.width or 0.0)
    smallest = min((size for size in sizes if SMALLEST <= size < math.inf), default=0.01)
    return max(1 - math.floor(math.log10(smallest)), 1)


def _number(value: float, digits: int, form: str = "") -> str:
    """A number with so many digits after the point, or with an exponent if it is too small or too large for them."""
    fits = value == 0 or 0.5 * 10**-digits <= abs(value) < LARGEST
    text = f"{value:{form}.{digits}f}" if fits else f"{value:{form}.2g}"
    return "−" + text[1:] if text.startswith("-") else text
