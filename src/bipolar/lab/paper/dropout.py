"""The paper's search for the best dropout between layers: it falls with depth.

ReLU networks of 4 and 36 layers, the other two rates at 0.025, by validation error.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bipolar.lab.paper import table1
from bipolar.lab.paper.experiment import Experiment, Outcome, Scale
from bipolar.lab.training.text import TextConfig

RATES = (0.025, 0.05, 0.1)


def runs(scale: Scale) -> dict[str, TextConfig]:
    found = {}
    for depth in (4, 36):
        base = table1.base(scale, depth)
        for rate in RATES:
            others: dict[str, Any] = {"recurrent_dropout": table1.OTHER_RATES, "block_dropout": table1.OTHER_RATES}
            model = replace(base.model, nonlinearity="relu", dropout=rate, **others)
            found[f"{depth} layers, {rate}"] = replace(base, model=model)
    return found


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    return {name: outcome.result.get("best_valid_bpc", table1.DNC) for name, outcome in outcomes.items()}


EXPERIMENT = Experiment(
    "dropout",
    "The best dropout between layers, by depth",
    runs,
    collect,
    {"best rate": {"4 layers": 0.1, "36 layers": 0.05}},
)
