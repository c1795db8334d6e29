"""The overhead of the training loop of ``bipolar train text`` over the model's own computations.

The benchmark times the model's forward pass, its loss, the backward pass and Adam within a whole run, with data,
metrics, guard, progress and checkpoints at their defaults. The rest of the run is overhead. Two loops one after the
other cannot show so small a difference: the machine's own pace changes by more than that in between.
"""

import argparse
import dataclasses
import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as tF

from benchmarks.common import machine, markdown_table, record
from bipolar.lab.training.journal import read_metrics
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.text import TextConfig, TextModel, train_text
from bipolar.models import CharRNN

STEPS, WARM_UP, ROUNDS, AIM = 120, 20, 3, 0.05
CONFIG = TextConfig(
    "python-docs",
    machine=Machine(accelerator="cpu"),
    max_valid_windows=1,
    batch_size=64,
    window=50,
    max_steps=STEPS,
)


@contextmanager
def own_seconds() -> Iterator[list[float]]:
    """The seconds spent so far in the model's own computations, at the end of each step of the optimiser."""
    spent, by_step = 0.0, list[float]()

    def timed(function: Callable[..., Any], ends_step: bool = False) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent
            start = time.perf_counter()
            result = function(*args, **kwargs)
            spent += time.perf_counter() - start
            if ends_step:
                by_step.append(spent)
            return result

        return call

    with ExitStack() as stack:
        for home, name in ((CharRNN, "forward"), (tF, "cross_entropy"), (torch.Tensor, "backward")):
            stack.enter_context(patch.object(home, name, timed(getattr(home, name))))
        stack.enter_context(patch.object(torch.optim.Adam, "step", timed(torch.optim.Adam.step, ends_step=True)))
        yield by_step


def measure(model: TextModel) -> tuple[float, float]:
    """The seconds of a step: the model's own, and all."""
    with tempfile.TemporaryDirectory() as directory, own_seconds() as own:
        out = Path(directory) / "run"
        train_text(dataclasses.replace(CONFIG, model=model, out=out))
        whole = {row["step"]: row["seconds"] for row in read_metrics(out) if "train_bpc" in row}
    steps = STEPS - WARM_UP
    return (own[STEPS - 1] - own[WARM_UP - 1]) / steps, (whole[STEPS] - whole[WARM_UP]) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    arguments = parser.parse_args()
    rows = []
    for layers, units in ((36, 64), (36, 128)):
        measured = [measure(TextModel(layers, units)) for _ in range(ROUNDS)]
        own, whole = min(measured)
        added = statistics.median(whole / own - 1 for own, whole in measured)
        verdict = f"{100 * added:+.1f} % (aim {100 * AIM:.0f} %: {'met' if added <= AIM else 'missed'})"
        rows.append([f"{layers} x {units}", f"{1000 * own:.1f}", f"{1000 * whole:.1f}", verdict])
    table = markdown_table(["layers x units", "the model's own, ms", "bipolar train text, ms", "added"], rows)
    text = (
        f"{machine()}; float32, batch {CONFIG.batch_size}, {CONFIG.window} steps. Times of a step in the fastest of "
        f"{ROUNDS} runs; what is added is the median over the runs.\n\n{table}"
    )
    print(text)
    if arguments.record:
        record("text", text)


if __name__ == "__main__":
    main()
