"""Figure 3: errors by epoch of oriented response networks without batch norm. The runs are those of Table 5."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from bipolar.lab.paper import table5
from bipolar.lab.paper.experiment import Experiment, Outcome, Scale
from bipolar.lab.training.images import ImageConfig

COLOURS = {"relu": "tab:blue", "brelu": "tab:orange", "elu": "tab:green", "belu": "tab:red"}


def runs(scale: Scale) -> dict[str, ImageConfig]:
    return {
        name.removeprefix("orn: "): config for name, config in table5.runs(scale).items() if name.startswith("orn: ")
    }


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Errors in per cent after each epoch, beginning with the first."""
    return {
        name: {
            "status": outcome.result["status"],
            "lr": outcome.result["lr"],
            **{
                metric: [row[metric] for row in outcome.metrics if "train_error" in row]
                for metric in ("train_error", "test_error")
            },
        }
        for name, outcome in outcomes.items()
    }


def draw(curves: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, metric, title in zip(panels, ("train_error", "test_error"), ("training", "test"), strict=True):
        for name, run in curves.items():
            end = "" if run["status"] == "finished" else ", did not converge"
            label = f"{name} (learning rate {run['lr']:g}{end})"
            axes.plot(range(1, len(run[metric]) + 1), run[metric], color=COLOURS[name], label=label)
        axes.set(xlabel="epoch", title=f"{title} error")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel="error (%)", ylim=(0, None))
    panels[0].legend(frameon=False, fontsize="small")
    return figure


EXPERIMENT = Experiment(
    "figure3",
    "Figure 3: errors of an oriented response network without batch norm, by epoch",
    runs,
    collect,
    {"last test error (%)": table5.PUBLISHED["orn"]},
    draw,
)
