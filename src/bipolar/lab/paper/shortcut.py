"""Is the gap of Table 5 the activation's, or the shortcut's? A study of our own.

Without a norm before it, an activation in place rectifies the residual stream itself, so that the shortcut carries f(x)
instead of x. By the sign symmetry a plain and a bipolar network with clean shortcuts are the same in distribution, if
LSUV measures the convolutions' outputs. Here are both kinds of shortcut for ReLU and ELU, and the bipolar activations
with clean ones; the learning rate is searched for on the first seed, and the others take it. Beside them what changes
if LSUV measures after the activations.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from bipolar.lab.paper import table5
from bipolar.lab.paper.experiment import Experiment, Outcome, Scale
from bipolar.lab.training.images import ImageConfig

#: activation, shortcut, where LSUV measures
VARIANTS: dict[str, tuple[str, Any, Any]] = {
    "relu, clean": ("relu", "clean", "output"),
    "relu, rectified": ("relu", "rectified", "output"),
    "brelu, clean": ("brelu", "clean", "output"),
    "elu, clean": ("elu", "clean", "output"),
    "elu, rectified": ("elu", "rectified", "output"),
    "belu, clean": ("belu", "clean", "output"),
    "relu, clean, LSUV after the activation": ("relu", "clean", "activation"),
    "brelu, clean, LSUV after the activation": ("brelu", "clean", "activation"),
}
SEEDS: dict[Scale, int] = {"quick": 2, "small": 3, "paper": 3}


def runs(scale: Scale) -> dict[str, ImageConfig]:
    config = table5.base(scale, "wrn")
    return {
        f"{name}: seed 1": replace(config, model=replace(config.model, activation=activation, shortcut=shortcut, at=at))
        for name, (activation, shortcut, at) in VARIANTS.items()
    }


def then(scale: Scale, outcomes: Mapping[str, Outcome]) -> dict[str, ImageConfig]:
    """The other seeds, at the rate that was found; not of what LSUV after the activation is measured for beside."""
    first = runs(scale)
    return {
        f"{name}: seed {seed}": replace(
            first[f"{name}: seed 1"], search=False, lr=outcomes[f"{name}: seed 1"].result["lr"], seed=seed
        )
        for seed in range(2, SEEDS[scale] + 1)
        for name, (_, _, at) in VARIANTS.items()
        if at == "output" and outcomes[f"{name}: seed 1"].converged
    }


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for name, outcome in outcomes.items():
        variant, _, seed = name.partition(": ")
        run = table5.summary(outcome)
        entry = found.setdefault(variant, {"lr": run["lr"], "attempts": run["attempts"], "seeds": {}})
        entry["seeds"][seed.removeprefix("seed ")] = {k: run[k] for k in ("test_error", "last_train_loss")}
    for entry in found.values():
        errors = [run["test_error"] for run in entry["seeds"].values() if isinstance(run["test_error"], float)]
        entry["mean_test_error"] = sum(errors) / len(errors) if errors else None
        entry["std_test_error"] = _deviation(errors)
    return found


def _deviation(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def draw(found: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for place, entry in enumerate(found.values()):
        errors = [run["test_error"] for run in entry["seeds"].values() if isinstance(run["test_error"], float)]
        axes.plot(errors, [place] * len(errors), "o", color="tab:blue", alpha=0.6)
        if errors:
            axes.plot([entry["mean_test_error"]], [place], "|", color="black", markersize=18)
    axes.set_yticks(range(len(found)), [f"{name} (learning rate {entry['lr']:g})" for name, entry in found.items()])
    axes.invert_yaxis()
    axes.set(xlabel="test error (%), a point for each seed", title="What the shortcut carries")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


EXPERIMENT = Experiment(
    "shortcut",
    "Test error (%) by activation and by what the shortcut carries",
    runs,
    collect,
    {"Table 5, WideResNet": table5.PUBLISHED["wrn"]},
    draw,
    then,
)
