"""Outcomes of runs, and the results that items make of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

#: The results of an item for one seed, ready for JSON.
Results: TypeAlias = dict[str, Any]

#: Stands in results in place of a number, for a run that diverged.
DNC = "did not converge"
#: The share of a run after which its last steps begin.
LATE = 0.9


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

    def last(self, name: str) -> float | None:
        """The mean of a metric over the last tenth of the run."""
        return late(self.curve(name))

    @property
    def converged(self) -> bool:
        return bool(self.result["status"] == "finished")


def late(curve: Sequence[tuple[int, float]]) -> float | None:
    """The mean of a curve over the last tenth of its steps."""
    values = [value for step, value in curve if step > LATE * curve[-1][0]]
    return sum(values) / len(values) if values else None


def halved_for_slowness(attempts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a search was sent down by slow runs, as in old records: its rate is not the highest possible one."""
    reasons = [str(attempt.get("reason")) for attempt in attempts[:-1]]
    return any("no better than a uniform guess" in reason and "times that" not in reason for reason in reasons)
