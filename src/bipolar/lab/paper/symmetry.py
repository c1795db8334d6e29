"""A study: a bipolar network trains exactly as the plain network with some weights' signs flipped.

With S = diag(+1, -1, ...) a bipolar activation is S f(S x). Replace W by S W S and b by S b, and every S cancels if all
operations between the activations commute with it, as Adam and dropout do. The study trains pairs side by side in
double precision, on the same batches with the same dropout: a bipolar network and its plain twin by
:func:`bipolar.fold`, once residual, once recurrent with 36 layers. Two more pairs have a max pooling or a LayerNorm
between, which do not commute with S: their losses part.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as tF
from matplotlib.figure import Figure
from torch import Tensor, nn

import bipolar
from bipolar._tools.figures import BLUE, VERMILION
from bipolar.lab.reproduce.item import Computation
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.rules import decided_if
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, flat_table
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict
from bipolar.models import CharRNN, WideResNet

STEPS = {"quick": 30, "small": 100, "paper": 300}
KINDS = ("bipolar", "plain")
SEED, LR, WEIGHT_DECAY = 1, 1e-3, 1e-4


@dataclass(frozen=True)
class Twins:
    """A bipolar network, its plain twin, and the loss of either at a step."""

    bipolar: nn.Module
    plain: nn.Module
    loss: Callable[[nn.Module, int], Tensor]


class Between(nn.Module):
    """A residual network with another module between its stem and its stages."""

    def __init__(self, network: nn.Module, between: nn.Module) -> None:
        super().__init__()
        self.network, self.between = network, between

    def forward(self, images: Tensor) -> Tensor:
        n = cast(WideResNet, self.network)
        x = n.activation(n.stages(self.between(n.stem(images))))
        output: Tensor = n.head(x.mean(dim=(2, 3)))
        return output


def convolutional(between: nn.Module) -> Twins:
    """A residual network of 10 layers, on random images."""
    model = WideResNet(10, 1, dropout=0.3).double()
    plain = bipolar.fold(model, strict=True)
    data = torch.Generator().manual_seed(SEED)
    images = torch.randn(8, 16, 3, 12, 12, generator=data, dtype=torch.float64)
    labels = torch.randint(10, (8, 16), generator=data)

    def loss(network: nn.Module, step: int) -> Tensor:
        return tF.cross_entropy(network(images[step % 8]), labels[step % 8])

    return Twins(Between(model, between), Between(plain, copy.deepcopy(between)), loss)


def recurrent(norm: bool) -> Twins:
    """A stack of 36 layers with skips and all three dropouts, on random text; optionally LayerNorm at its end."""
    model = CharRNN(20, 16, 36, dropout=0.1, recurrent_dropout=0.1, block_dropout=0.1).double()
    model.initialise(generator=torch.Generator().manual_seed(SEED))
    plain = bipolar.fold(model, strict=True)
    if norm:
        for network in (model, plain):
            network.add_module("decoder", nn.Sequential(nn.LayerNorm(16), network.decoder).double())
    text = torch.randint(20, (8, 13, 8), generator=torch.Generator().manual_seed(SEED))

    def loss(network: nn.Module, step: int) -> Tensor:
        window = text[step % 8]
        logits, _ = network(window[:-1], generator=torch.Generator().manual_seed(step))
        return tF.cross_entropy(logits.flatten(0, 1), window[1:].flatten())

    return Twins(model, plain, loss)


def train(twins: Twins, steps: int) -> dict[str, list[float]]:
    """The losses of both networks by step, trained with Adam."""
    losses: dict[str, list[float]] = {}
    for kind, network in zip(KINDS, (twins.bipolar, twins.plain), strict=True):
        optimizer = torch.optim.Adam(network.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
        losses[kind] = []
        for step in range(steps):
            torch.manual_seed(step)  # the same dropout
            loss = twins.loss(network, step)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[kind].append(loss.item())
    return losses


def compute(scale: Scale, data_dir: Path | None) -> Results:
    pairs: dict[str, Callable[[], Twins]] = {
        "convolutions": lambda: convolutional(nn.Identity()),
        "36 recurrent layers": lambda: recurrent(norm=False),
        "convolutions, max pooling between": lambda: convolutional(nn.MaxPool2d(2)),
        "36 recurrent layers, LayerNorm between": lambda: recurrent(norm=True),
    }
    found = {}
    for name, build in pairs.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            losses = train(build(), STEPS[scale])
        differences = [abs(a - b) for a, b in zip(*losses.values(), strict=True)]
        parted = next((step for step, difference in enumerate(differences) if difference), None)
        found[name] = {**losses, "largest_difference": max(differences), "first_step_that_differs": parted}
    return found


def draw(seeds: Sequence[Results]) -> Figure:
    results = seeds[0]
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (name, pair) in zip(figure.subplots(2, 2).flat, results.items(), strict=True):
        axes.plot(pair["plain"], color=BLUE, linewidth=4, alpha=0.4, label="plain, signs flipped")
        axes.plot(pair["bipolar"], "--", color=VERMILION, linewidth=1.5, label="bipolar")
        difference = pair["largest_difference"]
        end = "equal to the last bit" if difference == 0 else f"apart by up to {difference:.2g}"
        axes.set(title=f"{name}: {end}", xlabel="step", ylabel="loss")
        axes.title.set_fontsize("small")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False, fontsize="small")
    return figure


def _symmetry(e: Evidence) -> Verdict:
    (results,) = e.seeds("symmetry")
    equal = {name: pair["largest_difference"] == 0 for name, pair in results.items()}
    for name, pair in results.items():
        e.show(*(Entry([float(pair[kind][-1])], name=f"{kind}, {name}", quantity="last loss") for kind in KINDS))
    held = all(same == ("between" not in name) for name, same in equal.items())
    reason = "; ".join(f"{name}: {'equal to the last bit' if same else 'apart'}" for name, same in equal.items())
    return decided_if(held, reason)


CLAIMS = [
    Claim(
        "symmetry",
        "A bipolar network is a plain one with some weights' signs flipped, and trains as that does, unless "
        "something between the activations does not commute with the signs.",
        where=OURS,
        items=("symmetry",),
        rule=(
            "in double precision the losses of the two are equal to the last bit; with max pooling or LayerNorm "
            "between they are not"
        ),
        decide=_symmetry,
        least="quick",
    ),
]

ITEM = Computation(
    name="symmetry",
    title="The sign symmetry: a bipolar network and its plain twin, trained side by side",
    about=(
        "A residual network of 10 layers and a recurrent stack of 36, each bipolar, and each beside its plain twin, "
        "which has the same weights with some signs flipped. Trained by Adam on random data with the same dropout, in "
        "double precision; then the same with something between that does not commute with signs."
    ),
    claims=CLAIMS,
    caption=(
        "Pale and broad: the plain twin; dashed: the bipolar network. On top nothing stands between the activations "
        "that minds signs, and the dashes should lie on the pale curve throughout; below max pooling or LayerNorm "
        "stands there, and the two should part."
    ),
    draw=draw,
    tables=lambda seeds: [
        flat_table(
            "Losses of the two",
            seeds,
            {"largest_difference": "largest difference", "first_step_that_differs": "first step that differs"},
            digits=6,
        )
    ],
    compute=compute,
    configuration=lambda scale: {"steps": STEPS[scale], "lr": LR, "weight decay": WEIGHT_DECAY, "seed": SEED},
)
