"""Claims, the evidence for them, and comparisons that decide them or leave them open."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.records import by_seed
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

    def by_seed(self, item: str) -> dict[str, Results]:
        """The results by seed of an item whose runs are complete."""
        record = self.records.get(item)
        if record is None:
            raise MissingError(f"there are no runs of {item}")
        if not record.get("complete"):
            raise MissingError(f"the runs of {item} are not complete")
        return by_seed(record)

    def seeds(self, item: str) -> list[Results]:
        """The results of each seed of an item whose runs are complete."""
        return list(self.by_seed(item).values())

    def trained(self, item: str) -> bool:
        """Whether an item has runs with seeds; a computation has none."""
        return bool(self.records[item].get("by_seed"))

    def scale(self, item: str) -> Scale:
        scale: Scale = self.records[item]["scale"]
        return scale

    def entry(self, item: str, *path: str) -> Entry:
        """The values of all seeds at a path of the results."""
        return self.entry_of(item, " / ".join(path), lambda results: next(iter(over([results], *path)), None))

    def entry_of(self, item: str, name: str, value: Callable[[Results], float | str | None]) -> Entry:
        """The values of a function of the results, for all seeds; ``name`` is for the message if one is missing."""
        found = {seed: value(results) for seed, results in self.by_seed(item).items()}
        values = [v for v in found.values() if v is not None]
        if len(values) < len(found):
            raise MissingError(f"{item} has nothing at {name}" + (" for some seeds" if values else ""))
        return Entry(values, seeds=tuple(found))


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
            counts = [len(evidence.seeds(item)) for item in self.items if evidence.trained(item)]
            seeds = f"{_count(min(counts))}: " if counts else ""
            scale = evidence.scale(self.items[0])
            return Verdict(verdict.status, seeds + verdict.reason + (f" (scale: {scale})" if scale != "paper" else ""))
        except MissingError as error:
            return Verdict("not decided", str(error))


def _count(seeds: int) -> str:
    return {1: "one seed", 2: "two seeds"}.get(seeds, f"{seeds} seeds")


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
    """The order of the means of the seeds that converge.

    If both sides have the same seeds, which may share their random numbers, the differences seed by seed decide.
    """
    differences = Entry(_paired_differences(a, b))
    apart, error = differences.mean, differences.standard_error
    if apart is None or error is None:
        apart = (a.mean or 0.0) - (b.mean or 0.0)
        errors = [e for e in (a.standard_error, b.standard_error) if e is not None]
        error = math.hypot(*errors) if len(errors) == 2 else None
    noise = 0.0 if error is None else 2 * error
    least = margin.one if error is None else max(margin.several, noise)
    if abs(apart) > least:
        return "below" if apart < 0 else "above"
    return "equal" if abs(apart) + noise <= margin.several else "unclear"


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
