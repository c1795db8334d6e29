"""Figure 6: training loss by activation, in RNNs of 36 layers on Penn Treebank; the runs are those of Table 1."""

from typing import Any

from matplotlib.figure import Figure

from bipolar.figures import ACTIVATION_COLORS
from bipolar.lab.paper import table1
from bipolar.lab.paper.experiment import Experiment, Scale, train_curves
from bipolar.lab.training.text import TextConfig


def runs(scale: Scale) -> dict[str, TextConfig]:
    return {name.removeprefix("36: "): c for name, c in table1.runs(scale).items() if name.startswith("36: ")}


def draw(results: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, run in results.items():
        steps, losses = zip(*run["train_bpc"], strict=True) if run["train_bpc"] else ((), ())
        plain = name.partition(",")[0]
        bipolar = plain.startswith("b")
        style = "--" if bipolar else ":" if "second moment" in name else "-"
        color = ACTIVATION_COLORS[plain.removeprefix("b") if bipolar else plain]
        mark = " (did not converge)" if run["status"] != "finished" else ""
        axes.plot(steps, losses, style, color=color, linewidth=1.2, label=name + mark)
    axes.set(xlabel="step", ylabel="training loss (BPC)", title="36 layers, by activation")
    axes.set_ylim(top=min(8.0, axes.get_ylim()[1]))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    return figure


EXPERIMENT = Experiment(
    "figure6", "Figure 6: training loss by activation, 36 layers", runs, train_curves, {"elu": table1.DNC}, draw
)
