"""Claims, the evidence for them, and the verdicts that it leads to."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from bipolar.lab.reproduce.comparisons import Comparison, Margin, Order, compare
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
    #: the sides that the rule looked at, for readers; a verdict is the same without
    comparisons: Sequence[Comparison] = field(default=(), compare=False)


class MissingError(Exception):
    """A result that a claim needs is missing."""


class Evidence:
    """The records of items, by name, and the comparisons that were asked of them."""

    def __init__(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        self.records = records
        self.comparisons: list[Comparison] = []

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
        return named_by(name, Entry(values, seeds=tuple(found)))

    def compare(self, side: Entry, rival: Entry, margin: Margin) -> Order:
        """As :func:`compare`; and the verdict on the claim keeps it, so that the report can draw it."""
        order = compare(side, rival, margin)
        if side != rival:
            self.comparisons.append(Comparison(side, rival, margin, order))
        return order

    def show(self, side: Entry, rival: Entry | None = None, *, margin: Margin | None = None) -> None:
        """Keeps a side, or two beside each other, for the report where a rule looks at them in another way."""
        self.comparisons.append(Comparison(side, rival, margin))


#: Quantities in words, by the last part of the path of a value in the results.
QUANTITIES = {
    "valid_bpc": "validation BPC",
    "best_valid_bpc": "validation BPC",
    "test_bpc": "test BPC",
    "last_train_bpc": "training BPC, last steps",
    "train_bpc": "training BPC, mean over all steps",
    "test_error": "test error (%)",
    "train_error": "training error (%), mean over all epochs",
    "lr": "learning rate",
}


def named_by(path: str, entry: Entry) -> Entry:
    """An entry with its name and its quantity, from its path in the results."""
    *names, last = path.split(" / ")
    quantity = QUANTITIES.get(last, "")
    return replace(entry, name=", ".join(names if quantity else [*names, last]), quantity=quantity)


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
        seen = Evidence(evidence.records)  # with the comparisons of this claim alone
        return replace(self._verdict(seen), comparisons=tuple(seen.comparisons))

    def _verdict(self, evidence: Evidence) -> Verdict:
        try:
            for item in self.items:
                evidence.seeds(item)
                if SCALES.index(evidence.scale(item)) < SCALES.index(self.least):
                    with contextlib.suppress(MissingError):
                        self.decide(evidence)  # for its comparisons, which readers want to see all the same
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
