"""Figure 3: errors of oriented response networks without batch norm, by epoch; the runs are those of Table 5."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bipolar._tools.figures import ACTIVATION_COLORS
from bipolar.lab.paper import table5
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import Outcome, Results
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import flat_table
from bipolar.lab.training.images import ImageConfig


def runs(scale: Scale) -> dict[str, ImageConfig]:
    return {
        name.removeprefix("orn: "): config for name, config in table5.runs(scale).items() if name.startswith("orn: ")
    }


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Errors in per cent after each epoch."""
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


def draw(seeds: Sequence[Results]) -> Figure:
    curves = seeds[0]
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, metric, title in zip(panels, ("train_error", "test_error"), ("training", "test"), strict=True):
        for name, run in curves.items():
            end = "" if run["status"] == "finished" else ", did not converge"
            label = f"{name} (learning rate {run['lr']:g}{end})"
            color, style = ACTIVATION_COLORS[name.removeprefix("b")], "--" if name.startswith("b") else "-"
            axes.plot(range(1, len(run[metric]) + 1), run[metric], style, marker=".", color=color, label=label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="epoch", title=f"{title} error")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel="error (%)", ylim=(0, None))
    panels[0].legend(frameon=False, fontsize="small")
    return figure


ITEM = Training(
    name="figure3",
    title="Figure 3: errors of an oriented response network without batch norm, by epoch",
    about="The runs of Table 5, by epoch.",
    published={"last test error (%)": table5.PUBLISHED["orn"]},
    runs=runs,
    collect=collect,
    draw=draw,
    tables=lambda seeds: [
        flat_table("The learning rate that the search found", seeds, {"lr": "learning rate", "status": "status"}, 4)
    ],
)
