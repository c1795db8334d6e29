"""Comparisons of two sides of a claim, seed by seed, within a margin."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry


@dataclass(frozen=True)
class Margin:
    """The difference of two means from which on they are not equal.

    With several seeds it is ``several``, or two standard errors of the difference if these are larger. One seed says
    nothing about the noise, so the margin is wider: ``one``. At the paper's scale runs are so long that their ends
    differ less from seed to seed: there it is ``paper``, whatever the number of seeds, or two standard errors.
    """

    several: float
    one: float
    unit: str
    paper: float | None = None

    def at(self, scale: Scale) -> "Margin":
        """The margin at a scale."""
        return self if scale != "paper" or self.paper is None else Margin(self.paper, self.paper, self.unit)

    def __str__(self) -> str:
        text = f"{self.one:g} {self.unit} with one seed, {self.several:g} or two standard errors with several"
        if self.paper is None:
            return text
        longer = "at the paper's scale, where runs are long and end with less noise"
        return f"{text}; {self.paper:g} or two standard errors {longer}"


Order: TypeAlias = Literal["below", "above", "equal", "unclear"]


def compare(a: Entry, b: Entry, margin: Margin) -> Order:
    """The place of a relative to b, where above is worse, or ``"unclear"``.

    Seeds that diverge count first, then the mean of those that converge:

    - A side that always diverges is above one that does not. If both always diverge, it is unclear.
    - A side that diverges in some seeds is above one that never does; but if those of it that converge are below by
      more than the margin, it is unclear.
    - If both diverge in some seeds, the means decide; but if they do not point where the shares of seeds that
      diverge do, it is unclear.
    """
    if diverged(a) or diverged(b):
        return "unclear" if diverged(a) and diverged(b) else "above" if diverged(a) else "below"
    by_mean = _compare_means(a, b, margin)
    if a.failed == b.failed:
        return by_mean
    by_share: Order = "above" if a.failed > b.failed else "below"
    if a.failed and b.failed:
        return by_mean if by_mean == by_share else "unclear"
    return "unclear" if by_mean == ("below" if by_share == "above" else "above") else by_share


def _compare_means(a: Entry, b: Entry, margin: Margin) -> Order:
    """The order of the means of the seeds that converge."""
    apart, error = difference(a, b)
    noise = 0.0 if error is None else 2 * error
    least = margin.one if error is None else max(margin.several, noise)
    if abs(apart) > least:
        return "below" if apart < 0 else "above"
    return "equal" if abs(apart) + noise <= margin.several else "unclear"


def difference(a: Entry, b: Entry) -> tuple[float, float | None]:
    """The difference of the means of the seeds that converge, and its standard error, if there are several.

    If both sides have the same seeds, which may share their random numbers, it is that of the differences seed by seed.
    """
    differences = Entry(_paired_differences(a, b))
    if differences.mean is not None and differences.standard_error is not None:
        return differences.mean, differences.standard_error
    errors = [e for e in (a.standard_error, b.standard_error) if e is not None]
    return (a.mean or 0.0) - (b.mean or 0.0), math.hypot(*errors) if len(errors) == 2 else None


def _paired_differences(a: Entry, b: Entry) -> list[float]:
    """The differences in the seeds in which both converge; none if the seeds are not the same."""
    if not a.seeds or tuple(a.seeds) != tuple(b.seeds):
        return []
    return [x - y for x, y in zip(a.ours, b.ours, strict=True) if isinstance(x, float) and isinstance(y, float)]


def diverged(entry: Entry) -> bool:
    """Whether no seed has converged."""
    return not entry.numbers


def all_converged(entry: Entry) -> bool:
    return len(entry.numbers) == len(entry.ours)


#: The parts of an entry that its comparison keeps.
OF_A_SIDE = ("name", "quantity", "ours", "seeds", "bounds")


@dataclass(frozen=True)
class Comparison:
    """A side of a claim beside its rival, by seed; or alone, where the claim is about one.

    Margin and order are those by which the rule decided; None where it looked at the sides in another way.
    """

    side: Entry
    rival: Entry | None = None
    margin: Margin | None = None
    order: Order | None = None

    @property
    def sides(self) -> list[Entry]:
        return [side for side in (self.side, self.rival) if side is not None]

    @property
    def difference(self) -> tuple[float, float | None] | None:
        """The side less its rival, and twice the standard error of that; None where one of the two has no mean."""
        if self.rival is None or diverged(self.side) or diverged(self.rival):
            return None
        apart, error = difference(self.side, self.rival)
        return apart, None if error is None else 2 * error

    @property
    def in_common(self) -> bool:
        """Whether the difference is over those seeds alone in which both converge, and a side has others."""
        sides = [] if self.rival is None else [self.side, self.rival]
        paired = len(sides) == 2 and len(_paired_differences(*sides)) > 1
        return paired and not all(all_converged(side) for side in sides)

    @property
    def width(self) -> float | None:
        """The margin for the number of seeds; None where nothing was compared within one."""
        if self.margin is None or self.difference is None:
            return None
        return self.margin.one if self.difference[1] is None else self.margin.several

    def to_json(self) -> dict[str, Any]:
        """The comparison as data, without the parts that it does not have."""
        margin = None if self.margin is None else [self.margin.several, self.margin.one, self.margin.unit]
        values = {"margin": margin, "order": self.order}
        sides = [{part: getattr(side, part) for part in OF_A_SIDE if getattr(side, part)} for side in self.sides]
        return {"sides": sides} | {part: value for part, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Comparison":
        """The inverse of :meth:`to_json`."""
        parts: list[dict[str, Any]] = [
            {part: tuple(value) if isinstance(value, list) else value for part, value in side.items()}
            for side in values["sides"]
        ]
        side, *rival = (Entry(**of_side) for of_side in parts)
        margin = Margin(*values["margin"]) if "margin" in values else None
        return cls(side, rival[0] if rival else None, margin, values.get("order"))
