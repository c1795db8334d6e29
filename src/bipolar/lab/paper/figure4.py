"""Figure 4: the gradient on the output of each layer at each time step, with and without skip connections.

By its caption, the L2 norm of the gradient of the loss at the last time step of a window alone, averaged over the first
ten batches of training, for a network of 36 layers with bipolar ELU, initialised by LSUV.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as tF
from matplotlib.figure import Figure
from torch import Tensor

from bipolar._rnn import StackedRNN
from bipolar.lab.data import Streams, data_directory, load_text
from bipolar.lab.reproduce.comparisons import Margin
from bipolar.lab.reproduce.item import Computation
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.rules import decided_if
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, flat_table
from bipolar.lab.reproduce.verdicts import Claim, Evidence, Verdict
from bipolar.lab.unrolled import unrolled
from bipolar.models import CharRNN

LAYERS, BATCHES, SEED = 36, 10, 1
#: Steps back at the lowest layer if the gradient runs at 45 degrees, and how far from it still counts.
DIAGONAL, NEAR = 35.0, 9.0
#: data, units, streams, time steps, learning rate
SETTINGS = {
    "quick": ("python-docs", 32, 16, 50, 1e-3),
    "small": ("ptb", 256, 128, 50, 2e-4),
    "paper": ("ptb", 256, 128, 50, 2e-4),
}


def gradient_norms(model: CharRNN, x: Tensor, y: Tensor, state: Tensor | None) -> list[list[float]]:
    """The norm of the gradient of the last step's loss on each layer's output, by layer and time step."""
    rnn = model.rnn
    assert isinstance(rnn, StackedRNN)  # noqa: S101 - for the type checker
    start = x.new_zeros(rnn.num_layers, x.size(1), rnn.hidden_size, dtype=model.embedding.dtype)

    def join(z: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
        h = rnn.activation(z) + skip
        return h, h

    columns = unrolled(rnn, rnn.layers(), model.embedding[x], start if state is None else state, join)
    loss = tF.cross_entropy(model.decoder(columns[-1][-1]), y[-1])
    gradients = iter(torch.autograd.grad(loss, [output for column in columns for output in column]))
    by_step = [[next(gradients).norm().item() for _ in column] for column in columns]
    return [list(layer) for layer in zip(*by_step, strict=True)]


def norms_of(scale: Scale, data_dir: Path | None) -> dict[str, Any]:
    """The norms without and with skips, averaged over the first batches."""
    data, units, batch, window, lr = SETTINGS[scale]
    corpus = load_text(data, data_directory(data_dir))
    streams = Streams(corpus.train, batch, window)
    found = {}
    for kind, skip_every in (("without skips", None), ("with skips", 4)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            model = CharRNN(corpus.vocabulary, units, LAYERS, skip_every=skip_every)
            model.initialise(generator=torch.Generator().manual_seed(SEED))
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        total, state = torch.zeros(LAYERS, window), None
        for index in range(BATCHES):
            x, y = streams.at(index)
            total += torch.tensor(gradient_norms(model, x, y, state))
            logits, state = model(x, state)
            state = state.detach()
            tF.cross_entropy(logits.flatten(0, 1), y.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        found[kind] = (total / BATCHES).tolist()
    return found


def summary(norms: dict[str, Any]) -> dict[str, Any]:
    """The centre of the lowest layer's gradient, in steps before the last: 0 is straight down, 35 is 45°."""
    found = {}
    for kind, layers in norms.items():
        bottom = torch.tensor(layers[0])
        lag = torch.arange(len(bottom) - 1, -1, -1.0)
        found[kind] = {
            "mean_lag_of_the_lowest_layer": float((bottom * lag).sum() / bottom.sum()),
            "share_of_the_last_five_steps": float(bottom[-5:].sum() / bottom.sum()),
        }
    return found


def draw(seeds: Sequence[Results]) -> Figure:
    norms = seeds[0]["norms"]
    figure = Figure(figsize=(9, 8), layout="constrained")
    panels = figure.subplots(2, 1)
    for axes, (kind, layers) in zip(panels, norms.items(), strict=True):
        steps = len(layers[0])
        image = axes.imshow(
            layers, origin="lower", aspect="auto", cmap="Reds", extent=(0.5 - steps, 0.5, 0.5, LAYERS + 0.5)
        )
        axes.set(title=kind, xlabel="time step, from the last", ylabel="layer")
        figure.colorbar(image, ax=axes, label="gradient norm")
    return figure


def compute(scale: Scale, data_dir: Path | None) -> Results:
    norms = norms_of(scale, data_dir)
    return {**summary(norms), "norms": norms}


def configuration(scale: Scale) -> dict[str, Any]:
    data, units, batch, window, lr = SETTINGS[scale]
    settings = {"data": data, "layers": LAYERS, "units": units, "batch": batch, "window": window, "lr": lr}
    return {**settings, "batches": BATCHES, "seed": SEED}


def _lag(e: Evidence, kind: str) -> Entry:
    found = e.entry("figure4", kind, "mean_lag_of_the_lowest_layer")
    return replace(found, name=kind, quantity="steps back to the centre of the gradient at the lowest layer")


def _smeared(e: Evidence) -> Verdict:
    entry = _lag(e, "without skips")
    e.show(entry, Entry([DIAGONAL], name="45 degrees"), margin=Margin(NEAR, NEAR, "steps"))
    lag = entry.mean or 0.0
    reason = (
        f"without skips the gradient at the lowest of 36 layers is centred {lag:.1f} steps back; 45 degrees would be 35"
    )
    return decided_if(abs(lag - DIAGONAL) < NEAR, reason)


def _straightened(e: Evidence) -> Verdict:
    entries = [_lag(e, kind) for kind in ("with skips", "without skips")]
    e.show(*entries)
    with_, without = (entry.mean or 0.0 for entry in entries)
    reason = f"centred {without:.1f} steps back without skips, {with_:.1f} with"
    return decided_if(with_ < without / 2, reason)


CLAIMS = [
    Claim(
        "smeared",
        "Without skip connections the gradient is smeared over layers and time at 45 degrees.",
        where="Figure 4",
        items=("figure4",),
        rule="the gradient at the lowest of 36 layers is centred 35 steps back, give or take 9",
        decide=_smeared,
        least="quick",
    ),
    Claim(
        "straightened",
        "Skip connections lead the gradient straight down.",
        where="Figure 4",
        items=("figure4",),
        rule="with skips the gradient at the lowest layer is centred less than half as many steps back as without",
        decide=_straightened,
        least="quick",
    ),
]

ITEM = Computation(
    name="figure4",
    title="Figure 4: gradient on each layer's output by time step",
    about=(
        "The norm of the gradient on the output of each layer at each time step, of a loss on the last step only, over "
        "the first batches of training. Along 45 degrees it goes back one step in time for every layer down."
    ),
    claims=CLAIMS,
    published={"claim": "without skips the gradient is smeared at 45 degrees, with skips it is not"},
    caption=(
        "The darker, the larger the gradient of the last step's loss on that layer at that time. Without skips it "
        "runs down a diagonal, as many steps back in time as layers down; with skips it should stay in the last "
        "column, straight down."
    ),
    draw=draw,
    tables=lambda seeds: [
        flat_table(
            "The gradient at the lowest layer",
            [{kind: seed[kind] for kind in seed["norms"]} for seed in seeds],
            {
                "mean_lag_of_the_lowest_layer": "centred so many steps back (45 degrees is 35)",
                "share_of_the_last_five_steps": "share of the last five steps",
            },
        )
    ],
    compute=compute,
    configuration=configuration,
)
