"""Figure 1: bipolar versions of popular activation functions. From left: bipolar ELU, Leaky ReLU, ReLU."""

from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import bipolar
from bipolar._tools.figures import BLUE, VERMILION
from bipolar.lab.reproduce.comparison import flat_table
from bipolar.lab.reproduce.item import Computation, Results, Scale

# One can see the leak: at torch's default of 0.01 it looks like a ReLU.
SLOPE = 0.2
PANELS: dict[str, nn.Module] = {
    "Bipolar ELU": bipolar.BELU(),
    "Bipolar Leaky ReLU": bipolar.BLeakyReLU(negative_slope=SLOPE),
    "Bipolar ReLU": bipolar.BReLU(),
}
PLAIN: dict[str, nn.Module] = {
    "Bipolar ELU": nn.ELU(),
    "Bipolar Leaky ReLU": nn.LeakyReLU(SLOPE),
    "Bipolar ReLU": nn.ReLU(),
}


def units(activation: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs of the two kinds of unit, f(x) and -f(-x), over the points ``x``."""
    kept, flipped = activation(torch.stack((x, x), dim=1)).unbind(dim=1)
    return kept, flipped


def compute(scale: Scale, data_dir: Path | None) -> Results:
    """The mean of the output of each over the two kinds of unit, for normal inputs of mean 0 and 1.

    Theorem 1: for ReLU it is half the input's. Theorem 2: for ELU it is the average of the input's and a point in
    [-alpha, alpha].
    """

    def mean(f: nn.Module, of_input: float) -> float:
        return bipolar.moments(lambda x: f(x + of_input)).mean

    return {
        title: {
            "mean of the plain one": mean(PLAIN[title], 0),
            "mean": mean(f, 0),
            "mean of the plain one for an input of mean 1": mean(PLAIN[title], 1),
            "mean for an input of mean 1": mean(f, 1),
        }
        for title, f in PANELS.items()
    }


def draw(seeds: Sequence[Results]) -> Figure:
    x = torch.linspace(-3, 3, 601)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    all_axes = figure.subplots(1, len(PANELS), sharex=True, sharey=True)
    for axes, (title, activation) in zip(all_axes, PANELS.items(), strict=True):
        kept, flipped = units(activation, x)
        axes.axhline(0, color="0.8", linewidth=0.8)
        axes.axvline(0, color="0.8", linewidth=0.8)
        axes.plot(x.tolist(), kept.tolist(), color=BLUE, linewidth=2, label="ordinary unit, $f(x)$")
        axes.plot(
            x.tolist(), flipped.tolist(), color=VERMILION, linewidth=2, dashes=(5, 1.5), label="flipped unit, $-f(-x)$"
        )
        axes.set(title=title, xlabel="$x$", xlim=(-3, 3), ylim=(-3, 3), aspect="equal")
        axes.set_xticks(range(-3, 4))
        axes.set_yticks(range(-3, 4))
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0].set_ylabel("output")
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


ITEM = Computation(
    name="figure1",
    title="Figure 1: bipolar versions of popular activation functions",
    about="The mean of the output over both kinds of unit, integrated exactly, for a normal input of unit variance.",
    published={"claim": "flipping every second unit moves the mean activation towards zero"},
    draw=draw,
    tables=lambda seeds: [
        flat_table(
            "Mean of the output for a normal input",
            seeds,
            {
                "mean of the plain one": "plain, input of mean 0",
                "mean": "bipolar, input of mean 0",
                "mean of the plain one for an input of mean 1": "plain, input of mean 1",
                "mean for an input of mean 1": "bipolar, input of mean 1",
            },
        )
    ],
    compute=compute,
    configuration=lambda scale: {"negative slope of the leaky ReLU": SLOPE},
)
