"""Tables that set what was found beside what was published."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Cell:
    """What was found, a value for each seed, and what was published; either may be missing, or words."""

    ours: Sequence[float | str] = ()
    published: float | str | None = None

    @property
    def numbers(self) -> list[float]:
        return [value for value in self.ours if isinstance(value, float)]

    @property
    def mean(self) -> float | None:
        return sum(self.numbers) / len(self.numbers) if self.numbers else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over the seeds."""
        if self.mean is None or len(self.numbers) < 2:
            return None
        return math.sqrt(sum((value - self.mean) ** 2 for value in self.numbers) / (len(self.numbers) - 1))

    @property
    def difference(self) -> float | None:
        """Ours less the published one, where both are numbers."""
        return self.mean - self.published if self.mean is not None and isinstance(self.published, float) else None

    def text(self, digits: int) -> str:
        """What was found: the mean, its spread, and how many seeds failed."""
        words = [value for value in self.ours if isinstance(value, str)]
        if self.mean is None:
            return words[0] if words else ""
        form = f".{digits}f" if abs(self.mean) < 1e5 else f".{digits}g"
        spread = f" ± {self.spread:{form}}" if self.spread else ""
        failed = f" ({len(words)} of {len(self.ours)} {words[0]})" if words else ""
        mean = round(self.mean, digits) + 0.0  # without the sign of a zero
        return f"{mean:{form}}{spread}{failed}"

    def published_text(self, digits: int) -> str:
        return f"{self.published:.{digits}f}" if isinstance(self.published, float) else self.published or ""


@dataclass(frozen=True)
class Table:
    """Rows of cells."""

    title: str
    columns: Sequence[str]
    rows: dict[str, list[Cell]] = field(default_factory=dict)
    digits: int = 3

    @property
    def has_published(self) -> bool:
        return any(cell.published is not None for row in self.rows.values() for cell in row)


def over(seeds: Sequence[dict[str, Any]], *path: str) -> list[float | str]:
    """The value at a path, of each seed that has one; whole numbers as floating-point ones."""
    found: list[float | str] = []
    for value in seeds:
        node: Any = value
        for key in path:
            node = node.get(key) if isinstance(node, dict) else None
        if isinstance(node, int | float) and not isinstance(node, bool):
            found.append(float(node))
        elif isinstance(node, str):
            found.append(node.partition(":")[0] if node.startswith("did not converge") else node)
    return found


def ranking(title: str, published: Mapping[str, float], name: str, ours: Sequence[float | str], theirs: float) -> Table:
    """Networks by their error as published, with ours on top, beside what the paper has for it."""
    rows = {name: [Cell(ours, theirs)]} | {network: [Cell((), error)] for network, error in published.items()}
    return Table(title, ["error"], rows)


def flat_table(title: str, seeds: Sequence[dict[str, Any]], columns: dict[str, str], digits: int = 3) -> Table:
    """A row for each entry of the results, with some of its values; ``columns`` has a heading for each key.

    Whole numbers are shown as such.
    """
    names = list(dict.fromkeys(name for seed in seeds for name in seed))

    def cell(name: str, key: str) -> Cell:
        raw = [seed[name].get(key) for seed in seeds if isinstance(seed.get(name), dict)]
        if raw and all(isinstance(value, int) and not isinstance(value, bool) for value in raw):
            return Cell([", ".join(map(str, raw))])
        return Cell(over(seeds, name, key))

    rows = {name: [cell(name, key) for key in columns] for name in names}
    return Table(title, list(columns.values()), rows, digits)
