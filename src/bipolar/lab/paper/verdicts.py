"""How runs decide a claim: a comparison with a margin, or that it is not decided."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bipolar.lab.paper.comparison import Cell, over
from bipolar.lab.paper.experiment import SCALES, Results, Scale

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
        values = over(self.seeds(item), *path)
        if not values:
            raise MissingError(f"{item} has nothing at {' / '.join(path)}")
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


def diverged(cell: Cell) -> bool:
    """Whether no seed has converged."""
    return not cell.numbers


def all_converged(cell: Cell) -> bool:
    return len(cell.numbers) == len(cell.ours)


def lower(a: Cell, b: Cell, margin: float) -> bool | None:
    """Whether a is below b, by more than the margin and, with several seeds, two standard errors; None if neither is.

    What has not converged is above all that has.
    """
    if a.mean is None or b.mean is None:
        return None if a.mean is b.mean else b.mean is None
    variance = sum((cell.spread or 0.0) ** 2 / max(len(cell.numbers), 1) for cell in (a, b))
    least = max(margin, 2 * math.sqrt(variance))
    if abs(a.mean - b.mean) <= least:
        return None
    return a.mean < b.mean


def show(cell: Cell, digits: int = 3) -> str:
    seeds = f", {len(cell.ours)} seeds" if len(cell.ours) > 1 else ""
    return f"{cell.text(digits)}{seeds}"
