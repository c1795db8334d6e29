"""Verdicts on the records in ``results/small``, which come with the package for readers of a quick run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.verdicts import Status


@dataclass(frozen=True)
class Recorded:
    """The verdict on a claim, with the scale and the number of seeds of the runs behind it."""

    verdict: Status
    reason: str
    scale: Scale | None
    seeds: int


@cache
def recorded() -> Mapping[str, Recorded]:
    """The recorded verdicts by the name of the claim."""
    values: dict[str, dict[str, Any]] = json.loads(
        files("bipolar.lab.report").joinpath("recorded.json").read_text(encoding="utf-8")
    )
    return {name: Recorded(**verdict) for name, verdict in values.items()}
