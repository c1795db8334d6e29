"""Outcomes of runs, and the results that items make of them."""

from dataclasses import dataclass
from typing import Any, TypeAlias

#: The results of an item for one seed, ready for JSON.
Results: TypeAlias = dict[str, Any]

#: Stands in results in place of a number.
DNC = "did not converge"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: its configuration, ``result.json``, the rows of its metrics, and where it ran."""

    config: dict[str, Any]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    provenance: dict[str, Any]

    def curve(self, name: str) -> list[tuple[int, float]]:
        """Step and value of a metric."""
        return [(row["step"], row[name]) for row in self.metrics if isinstance(row.get(name), float)]

    def last(self, name: str, rows: int = 10) -> float | None:
        """The mean of a metric over its last rows."""
        values = [value for _, value in self.curve(name)[-rows:]]
        return sum(values) / len(values) if values else None

    @property
    def converged(self) -> bool:
        return bool(self.result["status"] == "finished")
