"""Tables of results beside published values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bipolar.lab.reproduce.outcomes import DNC, Results


@dataclass(frozen=True)
class Entry:
    """A value for each seed and the published value. Each is a number or words, and may be missing."""

    ours: Sequence[float | str] = ()
    published: float | str | None = None
    #: the names of the seeds of ``ours``, if they are known
    seeds: Sequence[str] = ()
    #: the runs that it is about, and what was measured, in words
    name: str = ""
    quantity: str = ""
    #: an interval around the mean, where it does not follow from the seeds
    bounds: tuple[float, ...] = ()

    @property
    def numbers(self) -> list[float]:
        return [value for value in self.ours if isinstance(value, float)]

    @property
    def failed(self) -> float:
        """The share of seeds that have words in place of a number: those that did not converge."""
        return 1 - len(self.numbers) / len(self.ours) if self.ours else 1.0

    @property
    def mean(self) -> float | None:
        return sum(self.numbers) / len(self.numbers) if self.numbers else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over the seeds."""
        if self.mean is None or len(self.numbers) < 2:
            return None
        apart = [value - self.mean for value in self.numbers]
        return math.sqrt(sum(a * a for a in apart) / (len(apart) - 1))  # a ** 2 would raise where a * a is infinite

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean."""
        return None if self.spread is None else self.spread / math.sqrt(len(self.numbers))

    @property
    def interval(self) -> tuple[float, ...]:
        """Two standard errors around the mean, or ``bounds``; empty where there is no telling."""
        if self.bounds or self.mean is None or self.standard_error is None:
            return self.bounds
        return self.mean - 2 * self.standard_error, self.mean + 2 * self.standard_error

    @property
    def difference(self) -> float | None:
        """Our mean less the published value, if both are numbers."""
        return self.mean - self.published if self.mean is not None and isinstance(self.published, float) else None

    def text(self, digits: int = 3) -> str:
        """Our mean, its spread, and how many seeds failed."""
        words = [value for value in self.ours if isinstance(value, str)]
        if self.mean is None:
            return words[0] if words else ""
        form = f".{digits}f" if abs(self.mean) < 1e5 else f".{digits}g"
        spread = f" ± {self.spread:{form}}" if self.spread else ""
        failed = f" ({len(words)} of {len(self.ours)} {words[0]})" if words else ""
        mean = round(self.mean, digits) + 0.0  # turns -0.0 into 0.0
        return f"{mean:{form}}{spread}{failed}"

    def rendered(self, digits: int, compared: bool = True) -> "RenderedEntry":
        return RenderedEntry(
            ours=self.text(digits),
            published=f"{self.published:.{digits}f}" if isinstance(self.published, float) else self.published or "",
            difference="" if self.difference is None or not compared else f"{self.difference:+.{digits}f}",
        )


@dataclass(frozen=True)
class RenderedEntry:
    """The texts of an entry, for every format of the report; empty where there is no value."""

    ours: str
    published: str
    difference: str


@dataclass(frozen=True)
class Table:
    """Rows of entries."""

    title: str
    columns: Sequence[str]
    rows: dict[str, list[Entry]] = field(default_factory=dict)
    digits: int = 3
    #: whether our values and the published ones are on the same data, so that their difference means something
    compared: bool = True

    @property
    def has_published(self) -> bool:
        return any(entry.published is not None for row in self.rows.values() for entry in row)

    @cached_property
    def rendered(self) -> dict[str, list[RenderedEntry]]:
        """The rows as texts."""
        return {name: [entry.rendered(self.digits, self.compared) for entry in row] for name, row in self.rows.items()}


def over(seeds: Sequence[Results], *path: str) -> list[float | str]:
    """The value at a path, for each seed that has one; integers become floats.

    The learning rate of a run that did not converge is the last of its attempts, and none that was found.
    """
    found: list[float | str] = []
    for value in seeds:
        node: Any = value
        for key in path:
            above, node = node, node.get(key) if isinstance(node, dict) else None
        if path[-1:] == ("lr",) and node is not None and _failed(above):
            found.append(DNC)
        elif isinstance(node, int | float) and not isinstance(node, bool):
            found.append(float(node))
        elif isinstance(node, str):
            found.append(DNC if node.startswith(DNC) else node)  # without the reason
    return found


def _failed(run: Mapping[str, Any]) -> bool:
    return run.get("status", "finished") != "finished" or str(run.get("test_error")).startswith(DNC)


def ranking(title: str, published: Mapping[str, float], name: str, ours: Sequence[float | str], theirs: float) -> Table:
    """Published errors of several networks; on top ours, beside the paper's value for it."""
    rows = {name: [Entry(ours, theirs)]} | {network: [Entry((), error)] for network, error in published.items()}
    return Table(title, ["error"], rows)


def flat_table(title: str, seeds: Sequence[Results], columns: dict[str, str], digits: int = 3) -> Table:
    """A row for each name in the results; ``columns`` maps a key of its values to a heading.

    Integers are listed seed by seed instead of averaged.
    """
    names = list(dict.fromkeys(name for seed in seeds for name in seed))

    def entry(name: str, key: str) -> Entry:
        raw = [seed[name].get(key) for seed in seeds if isinstance(seed.get(name), dict)]
        if raw and all(isinstance(value, int) and not isinstance(value, bool) for value in raw):
            return Entry([", ".join(map(str, raw))])
        return Entry(over(seeds, name, key))

    rows = {name: [entry(name, key) for key in columns] for name in names}
    return Table(title, list(columns.values()), rows, digits)
