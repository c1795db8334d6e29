"""Claims, the evidence for them, and comparisons that decide them or leave them open."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.records import results_of
from bipolar.lab.reproduce.scales import SCALES, Scale
from bipolar.lab.reproduce.tables import Entry, over

#: ``Claim.where`` of a claim that the paper does not make.
OURS = "ours"

Status: TypeAlias = Literal["reproduced", "not reproduced", "not decided"]


@dataclass(frozen=True)
class Verdict:
    """The answer of the runs to a claim, and the reason."""

    status: Status
    reason: str


class MissingError(Exception):
    """A result that a claim needs is missing."""


class Evidence:
    """The records of items, by name."""

    def __init__(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        self.records = records

    def seeds(self, item: str) -> list[Results]:
        """The results of each seed of an item whose runs are complete."""
        record = self.records.get(item)
        if record is None:
            raise MissingError(f"there are no runs of {item}")
        if not record.get("complete"):
            raise MissingError(f"the runs of {item} are not complete")
        return results_of(record)

    def scale(self, item: str) -> Scale:
        scale: Scale = self.records[item]["scale"]
        return scale

    def entry(self, item: str, *path: str) -> Entry:
        """The values of all seeds at a path of the results."""
        return self.entry_of(item, " / ".join(path), lambda results: next(iter(over([results], *path)), None))

    def entry_of(self, item: str, name: str, value: Callable[[Results], float | str | None]) -> Entry:
        """The values of a function of the results, for all seeds; ``name`` is for the message if one is missing."""
        found = [value(results) for results in self.seeds(item)]
        values = [v for v in found if v is not None]
        if len(values) < len(found):
            raise MissingError(f"{item} has nothing at {name}" + (" for some seeds" if values else ""))
        return Entry(values)


@dataclass(frozen=True)
class Claim:
    """A claim, and the rule that decides it."""

    name: str
    text: str
    #: its place in the paper, or :data:`OURS`
    where: str
    #: the items whose results decide it; the report shows it with the first
    items: tuple[str, ...]
    #: the rule in words
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
    """The difference of two means from which on they are not equal.

    With several seeds it is ``several``, or two standard errors of the difference if these are larger. One seed says
    nothing about the noise, so the margin is wider: ``one``.
    """

    several: float
    one: float
    unit: str

    def __str__(self) -> str:
        return f"{self.one:g} {self.unit} with one seed, {self.several:g} or two standard errors with several"


Order: TypeAlias = Literal["below", "above", "equal", "unclear"]


def compare(a: Entry, b: Entry, margin: Margin) -> Order:
    """The place of a relative to b, or ``"unclear"``.

    An entry that did not converge is above every one that did; an entry of which some seeds converged is unclear.
    """
    if any(0 < len(entry.numbers) < len(entry.ours) for entry in (a, b)) or (a.mean is None and b.mean is None):
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


def diverged(entry: Entry) -> bool:
    """Whether no seed has converged."""
    return not entry.numbers


def all_converged(entry: Entry) -> bool:
    return len(entry.numbers) == len(entry.ours)


def show(entry: Entry, digits: int = 3) -> str:
    """The mean and spread of an entry, and its number of seeds."""
    seeds = f"{len(entry.ours)} seeds" if len(entry.ours) > 1 else "one seed"
    return f"{entry.text(digits)} ({seeds})"
