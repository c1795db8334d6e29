"""Verdicts on the records in ``results/small``, which come with the package for readers of a quick run."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from bipolar.lab.reproduce.comparisons import Comparison
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.verdicts import Status


@dataclass(frozen=True)
class Recorded:
    """The verdict on a claim, with the scale and the number of seeds of the runs behind it, and what they compare."""

    verdict: Status
    reason: str
    scale: Scale | None
    seeds: int
    comparisons: Sequence[Comparison] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Recorded":
        """The inverse of :meth:`to_json`."""
        comparisons = tuple(Comparison.from_json(comparison) for comparison in values["comparisons"])
        return cls(**{**values, "comparisons": comparisons})


@cache
def recorded() -> Mapping[str, Recorded]:
    """The recorded verdicts by the name of the claim."""
    values: dict[str, dict[str, Any]] = json.loads(
        files("bipolar.lab.report").joinpath("recorded.json").read_text(encoding="utf-8")
    )
    return {name: Recorded.from_json(verdict) for name, verdict in values.items()}
