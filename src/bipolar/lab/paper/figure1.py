"""Figure 1: bipolar versions of popular activation functions. From left: bipolar ELU, Leaky ReLU, ReLU."""

from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import bipolar
from bipolar._tools.figures import BLUE, VERMILION
from bipolar.lab.reproduce.item import Computation
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.rules import decided_if
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, flat_table
from bipolar.lab.reproduce.verdicts import Claim, Evidence, MissingError, Verdict

# Large enough to see: with torch's default of 0.01 a leaky ReLU looks like a ReLU.
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
    """The mean output of each activation over the two kinds of unit, for normal inputs of mean 0 and 1.

    Theorem 1: for ReLU it is half the mean of the input. Theorem 2: for ELU it is the average of the mean of the input
    and a point in [-alpha, alpha].
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


def _means(e: Evidence) -> Verdict:
    (results,) = e.seeds("figure1")
    worst = max(abs(float(values["mean"])) for values in results.values())
    plain = min(abs(float(values["mean of the plain one"])) for values in results.values())
    try:
        shifted = {name: float(values["mean for an input of mean 1"]) for name, values in results.items()}
    except KeyError:
        raise MissingError("figure1 was recorded without inputs of mean 1") from None
    for name, values in results.items():
        quantity = "mean of the output, for an input of mean 0"
        plain_one = Entry(
            [float(values["mean of the plain one"])], name=name.removeprefix("Bipolar "), quantity=quantity
        )
        e.show(Entry([float(values["mean"])], name=name, quantity=quantity), plain_one)
    reason = (
        f"for an input of mean 0 the mean of the output is at most {worst:.1g}, that of the plain activation at least "
        f"{plain:.2g}; for one of mean 1 it is "
        + ", ".join(f"{mean:.3f} ({name.removeprefix('Bipolar ')})" for name, mean in shifted.items())
    )
    theorem1 = abs(shifted["Bipolar ReLU"] - 0.5) < 1e-3
    theorem2 = abs(2 * shifted["Bipolar ELU"] - 1) <= 1
    held = worst < 1e-3 < plain and theorem1 and theorem2
    return decided_if(held, reason)


CLAIMS = [
    Claim(
        "mean",
        "A bipolar activation shifts the mean: that of ReLU to half the input's, that of ELU to the average of the "
        "input's and a point near zero.",
        where="Theorems 1 and 2, Figure 1",
        items=("figure1",),
        rule=(
            "for a normal input of mean 0 the mean over both kinds of unit is below 0.001 and that of the plain "
            "activation above; for one of mean 1 it is 0.5 for ReLU to within 0.001, and between 0 and 1 for ELU"
        ),
        decide=_means,
        least="quick",
    ),
]

ITEM = Computation(
    name="figure1",
    title="Figure 1: bipolar versions of popular activation functions",
    about="The mean of the output over both kinds of unit, integrated exactly, for a normal input of unit variance.",
    claims=CLAIMS,
    published={"claim": "flipping every second unit moves the mean activation towards zero"},
    caption=(
        "Each panel has both halves of a layer: ordinary units in blue, flipped ones dashed. The dashed curve is the "
        "blue one turned by half a turn about the origin, so the two outputs cancel in the mean."
    ),
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
