"""How runs decide a claim: a comparison with a margin, or that it is not decided."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bipolar.lab.reproduce.comparison import Cell, over
from bipolar.lab.reproduce.item import SCALES, Results, Scale

#: Where a claim stands that is not the paper's.
OURS = "ours"

Status: TypeAlias = Literal["reproduced", "not reproduced", "not decided"]


@dataclass(frozen=True)
class Verdict:
    """What the runs say about a claim, and why."""

    status: Status
    reason: str


class MissingError(Exception):
    """That a claim cannot be decided, because something is not there."""


def results_of(record: Mapping[str, Any]) -> list[Results]:
    """The results of each seed."""
    by_seed = record.get("by_seed")
    return list(by_seed.values()) if by_seed else [record["results"]]


class Evidence:
    """The records of items, by name."""

    def __init__(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        self.records = records

    def seeds(self, item: str) -> list[dict[str, Any]]:
        """The results of each seed."""
        record = self.records.get(item)
        if record is None:
            raise MissingError(f"there are no runs of {item}")
        if not record.get("complete"):
            raise MissingError(f"the runs of {item} are not complete")
        return results_of(record)

    def scale(self, item: str) -> Scale:
        scale: Scale = self.records[item]["scale"]
        return scale

    def cell(self, item: str, *path: str) -> Cell:
        """The values at a path of the results, of all seeds."""
        return self.cell_of(item, " / ".join(path), lambda results: next(iter(over([results], *path)), None))

    def cell_of(self, item: str, name: str, value: Callable[[Results], float | str | None]) -> Cell:
        """What a function makes of the results of each seed."""
        found = [value(results) for results in self.seeds(item)]
        values = [v for v in found if v is not None]
        if len(values) < len(found):
            raise MissingError(f"{item} has nothing at {name}" + (" for some seeds" if values else ""))
        return Cell(values)


@dataclass(frozen=True)
class Claim:
    """A claim, and the rule that decides it."""

    name: str
    text: str
    #: where it stands: in the paper, or that it is ours
    where: str
    #: the items whose results decide it
    items: tuple[str, ...]
    #: how, in words
    rule: str
    decide: Callable[[Evidence], Verdict]
    #: the smallest scale that can decide it
    least: Scale = "small"

    def verdict(self, evidence: Evidence) -> Verdict:
        try:
            for item in self.items:
                evidence.seeds(item)
                if SCALES.index(evidence.scale(item)) < SCALES.index(self.least):
                    return Verdict("not decided", f"the scale {evidence.scale(item)} is too small to tell")
            verdict = self.decide(evidence)
            scale = evidence.scale(self.items[0])
            return verdict if scale == "paper" else Verdict(verdict.status, f"{verdict.reason} (scale: {scale})")
        except MissingError as error:
            return Verdict("not decided", str(error))


@dataclass(frozen=True)
class Margin:
    """How far apart two means have to be to differ; within it, they are equal.

    With several seeds that is ``several``, or two standard errors of the difference if they are more. With one seed
    nothing is known about the noise, so that it takes more to tell two runs apart: ``one``.
    """

    several: float
    one: float
    unit: str

    def __str__(self) -> str:
        return f"{self.one:g} {self.unit} with one seed, {self.several:g} or two standard errors with several"


Order: TypeAlias = Literal["below", "above", "equal", "unclear"]


def compare(a: Cell, b: Cell, margin: Margin) -> Order:
    """Whether a is below b, above it or equal to it, beyond doubt.

    What has not converged is above all that has; a value of which some seeds have and some have not is unclear.
    """
    if any(0 < len(cell.numbers) < len(cell.ours) for cell in (a, b)) or (a.mean is None and b.mean is None):
        return "unclear"
    if a.mean is None or b.mean is None:
        return "above" if a.mean is None else "below"
    apart = a.mean - b.mean
    if a.spread is None or b.spread is None:
        noise, least = 0.0, margin.one
    else:
        noise = 2 * math.sqrt(a.spread**2 / len(a.numbers) + b.spread**2 / len(b.numbers))
        least = max(margin.several, noise)
    if abs(apart) > least:
        return "below" if apart < 0 else "above"
    return "equal" if abs(apart) + noise <= margin.several else "unclear"


def diverged(cell: Cell) -> bool:
    """Whether no seed has converged."""
    return not cell.numbers


def all_converged(cell: Cell) -> bool:
    return len(cell.numbers) == len(cell.ours)


def show(cell: Cell, digits: int = 3) -> str:
    seeds = f"{len(cell.ours)} seeds" if len(cell.ours) > 1 else "one seed"
    return f"{cell.text(digits)} ({seeds})"
