"""``bipolar.StackedRNN`` against ``nn.RNN`` over a grid of depths, widths and batches: is it ever slower?

A training step (forward and backward) of a stack of ReLU layers without skips, which is the function that ``nn.RNN``
computes. Both fast backends and ``nn.RNN`` take turns. Our time is that of the backend which ``"auto"`` chooses; the
other one shows what a better choice would gain.

All sequences have 50 time steps, or as many as make a step of a few seconds. What would take over a minute with all 50
is left out. Every cell of the grid is kept; a command that was stopped goes on where it was. The choice is that of
today, for cells that were measured before, too: with ``--minutes 0`` another rule is judged within a second.

The machine should have nothing else to do. ``--busy`` is for one that has: the time of the processor, with one thread.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from torch import nn

import bipolar
from benchmarks.common import best_of, machine, markdown_table, record, timed
from benchmarks.rnn import training_step
from bipolar._rnn.backends import is_faster_by_layer
from bipolar._tools.figures import save
from bipolar._tools.files import write_json
from bipolar.lab.provenance import provenance
from bipolar.lab.training.journal import duration

LAYERS, UNITS, BATCHES = (1, 2, 4, 12, 36, 144), (32, 64, 128, 256, 512, 1024), (1, 16, 128)
#: Time steps at most and at least, the seconds of a training step that allow more, and those that are too many.
MOST, LEAST, LONG, TOO_LONG = 50, 8, 2.0, 60.0
METHODS = ("nn.RNN", "scan", "wavefront")
RESULTS = Path(__file__).parents[1] / "results" / "grid.json"


class Cell(NamedTuple):
    """A place in the grid."""

    layers: int
    units: int
    batch: int

    @property
    def name(self) -> str:
        return f"{self.layers} x {self.units}, batch {self.batch}"

    @property
    def guess(self) -> float:
        """About the seconds that ``nn.RNN`` takes for a time step: to launch, to read the weights, to multiply."""
        return self.layers * (35e-6 + self.units**2 * (3e-9 + 9e-11 * self.batch))

    @property
    def steps(self) -> int:
        return max(LEAST, min(MOST, int(LONG / self.guess)))

    def length(self, rounds: int, at_least: float) -> float:
        """About the seconds that this cell takes to measure."""
        a_round = len(METHODS) * self.guess * self.steps
        return a_round + max(rounds * a_round, at_least)


def cells() -> Iterator[Cell]:
    """All that are measured."""
    for batch in BATCHES:
        for layers in LAYERS:
            for units in UNITS:
                cell = Cell(layers, units, batch)
                if MOST * cell.guess <= TOO_LONG:
                    yield cell


def measure(cell: Cell, rounds: int, at_least: float, busy: bool) -> dict[str, Any]:
    """The time steps, how they were measured, and the seconds of each method."""
    layers, units, batch = cell
    x = torch.randn(cell.steps, batch, units)
    # Each has parameters of its own. With shared ones, a method frees the gradients of the method before; where these
    # go back to the system, it pays for new memory at every turn, which none does in training.
    models: list[nn.Module] = [nn.RNN(units, units, layers, nonlinearity="relu")]
    for backend in METHODS[1:]:
        models.append(bipolar.StackedRNN(units, units, layers, "relu", skip_every=None, backend=cast(Any, backend)))
        models[-1].load_state_dict(models[0].state_dict())
    clock = time.process_time if busy else time.perf_counter
    times = best_of([timed(training_step(model, x), clock=clock) for model in models], rounds, at_least)
    seconds = {name: best for name, (best,) in zip(METHODS, times, strict=True)}
    return {"steps": cell.steps, "rounds": rounds, "busy": busy, **seconds}


class Ratio(NamedTuple):
    """The time of ``nn.RNN`` in a cell is 1."""

    chosen: str
    ours: float
    other: float

    @property
    def lost(self) -> float:
        """What the better backend would gain over the one that ``"auto"`` chooses."""
        return self.ours / min(self.ours, self.other) - 1


def ratios(found: dict[str, dict[str, Any]]) -> dict[Cell, Ratio]:
    """Our time over that of ``nn.RNN``, for all cells that are measured."""
    result = {}
    for cell in cells():
        if cell.name in found:
            row = found[cell.name]
            by_layer = is_faster_by_layer(row["steps"], *cell, item_size=4, device="cpu")
            chosen, other = ("scan", "wavefront") if by_layer else ("wavefront", "scan")
            result[cell] = Ratio(chosen, row[chosen] / row["nn.RNN"], row[other] / row["nn.RNN"])
    return result


def summary(found: dict[str, dict[str, Any]]) -> str:
    """The worst cells, and what the choice loses."""
    table = ratios(found)
    worst, lost = max(table, key=lambda cell: table[cell].ours), max(table, key=lambda cell: table[cell].lost)
    shorter = [f"{cell.name}: {found[cell.name]['steps']}" for cell in table if found[cell.name]["steps"] < MOST]
    mean = math.exp(sum(math.log(ratio.ours) for ratio in table.values()) / len(table))
    verdict = "met" if table[worst].ours <= 1 else "missed"
    slower = sum(ratio.ours > 1 for ratio in table.values())
    planned = len(list(cells()))
    too_long = len(LAYERS) * len(UNITS) * len(BATCHES) - planned
    return (
        f"Worst: {table[worst].ours:.2f} of the time of `nn.RNN`, at {worst.name} (aim 1: {verdict}); "
        f"{slower} of {len(table)} cells are slower, the geometric mean is {mean:.2f}. The choice of the backend loses "
        f"{100 * table[lost].lost:.0f} % at most, at {lost.name}. Left out as too long: {too_long}; "
        f"not measured yet: {planned - len(table)}. "
        f"Time steps where they are fewer: {'; '.join(shorter) or 'none'}."
    )


def text_table(found: dict[str, dict[str, Any]]) -> str:
    table = ratios(found)

    def entry(cell: Cell) -> str:
        ratio = table.get(cell)
        return "" if ratio is None else f"{ratio.ours:.2f} {ratio.chosen[0]}"

    rows = [
        [f"{batch}", f"{layers}", *(entry(Cell(layers, units, batch)) for units in UNITS)]
        for batch in BATCHES
        for layers in LAYERS
    ]
    return markdown_table(["batch", "layers", *(f"{units} units" for units in UNITS)], rows)


def draw(found: dict[str, dict[str, Any]]) -> Figure:
    """A map of the ratios for each batch."""
    table = ratios(found)
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    panels = figure.subplots(1, len(BATCHES), sharey=True, squeeze=False)[0]
    image: Any = None
    for batch, axes in zip(BATCHES, panels, strict=True):
        values = [[math.nan] * len(UNITS) for _ in LAYERS]
        for i, layers in enumerate(LAYERS):
            for j, units in enumerate(UNITS):
                ratio = table.get(Cell(layers, units, batch))
                if ratio is not None:
                    values[i][j] = math.log2(ratio.ours)
                    axes.text(j, i, f"{ratio.ours:.2f}\n{ratio.chosen}", ha="center", va="center", fontsize=6.5)
        image = axes.imshow(values, cmap="RdBu_r", norm=TwoSlopeNorm(0, -3, 1), aspect="auto", origin="lower")
        axes.set_title(f"batch {batch}", fontsize=10)
        axes.set_xticks(range(len(UNITS)), [f"{units}" for units in UNITS])
        axes.set_yticks(range(len(LAYERS)), [f"{layers}" for layers in LAYERS])
        axes.set_xlabel("units")
    panels[0].set_ylabel("layers")
    bar = figure.colorbar(image, ax=panels, ticks=[-3, -2, -1, 0, 1], label="time of StackedRNN over nn.RNN")
    bar.ax.set_yticklabels(["1/8", "1/4", "1/2", "1", "2"])
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="rounds at least, of which the best counts (default: 4)")
    parser.add_argument("--at-least", type=float, default=2.0, help="seconds of rounds in a cell (default: 2)")
    parser.add_argument("--minutes", type=float, help="begin no cell that would end after this time")
    parser.add_argument("--busy", action="store_true", help="measure the processor's time, with one thread")
    parser.add_argument("--out", type=Path, default=Path("runs/grid.json"), help="the cells, to go on from")
    parser.add_argument("--record", action="store_true", help="write table and picture of the cells that are there")
    given = parser.parse_args(arguments)
    found = json.loads(given.out.read_text(encoding="utf-8"))["cells"] if given.out.exists() else {}
    if any(row["busy"] != given.busy for row in found.values()):
        parser.error(f"--busy: {given.out} was measured the other way; name another file by --out")
    left = [cell for cell in cells() if cell.name not in found]
    length = sum(cell.length(given.rounds, given.at_least) for cell in left)
    print(f"This is long: {len(left)} cells, {duration(length)} in all; {given.out} has {len(found)}", flush=True)
    torch.manual_seed(0)
    if given.busy:
        torch.set_num_threads(1)
    start = time.monotonic()
    for number, cell in enumerate(left, 1):
        ahead = cell.length(given.rounds, given.at_least)
        if given.minutes is not None and time.monotonic() - start + ahead > 60 * given.minutes:
            continue
        found[cell.name] = row = measure(cell, given.rounds, given.at_least, given.busy)
        write_json(given.out, {**provenance(), "cells": found})
        times = ", ".join(f"{name} {1000 * row[name]:.1f} ms" for name in METHODS)
        print(f"{number} of {len(left)}: {cell.name}, {row['steps']} steps: {times}", flush=True)
    if not found:
        return
    rounds = min(row["rounds"] for row in found.values())
    what = "time of the processor" if given.busy else "time"
    head = (
        f"{machine()}; float32; {what}, best of {rounds} rounds or more. Ours over that of `nn.RNN`; s for layer "
        "by layer (scan), w for the wavefront."
    )
    text = f"{head}\n\n{text_table(found)}\n\n{summary(found)}"
    print(text)
    save(draw(found), given.out.with_suffix(".svg"))
    if given.record:
        write_json(RESULTS, json.loads(given.out.read_text(encoding="utf-8")))
        save(draw(found), RESULTS.with_suffix(".svg"))
        record("grid", f"![Time of StackedRNN over nn.RNN](../results/grid.svg)\n\n{text}")


if __name__ == "__main__":
    main()
