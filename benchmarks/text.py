"""What the training loop of ``bipolar train text`` adds to the model's own steps.

The same model, data and optimiser: once as a bare loop of forward, backward and Adam, once by the whole machinery with
metrics, guard, progress and checkpoints at their defaults. Taking turns in one run; the best round of each counts.
"""

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as tF

from benchmarks.common import best_of, machine, markdown_table, record
from bipolar.lab.data import Streams, load_text
from bipolar.lab.training.loop import Machine, read_metrics
from bipolar.lab.training.text import TextConfig, TextModel, train_text

STEPS, WARM_UP, AIM = 60, 20, 0.05
CONFIG = TextConfig(
    "python-docs",
    machine=Machine(accelerator="cpu"),
    max_valid_windows=1,
    batch_size=64,
    window=50,
    max_steps=STEPS,
)


def bare(model_config: TextModel) -> Callable[[], tuple[float]]:
    corpus = load_text(CONFIG.data, Path())
    streams = Streams(corpus.train, CONFIG.batch_size, CONFIG.window)

    def run() -> tuple[float]:
        model = model_config.build(corpus.vocabulary)
        model.initialise()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
        state = None
        for index in range(STEPS):
            if index == WARM_UP:
                start = time.perf_counter()
            x, y = streams.at(index)
            logits, state = model(x, state)
            state = state.detach()
            tF.cross_entropy(logits.flatten(0, 1), y.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        return ((time.perf_counter() - start) / (STEPS - WARM_UP),)

    return run


def whole(model_config: TextModel) -> Callable[[], tuple[float]]:
    def run() -> tuple[float]:
        with tempfile.TemporaryDirectory() as directory:
            out = Path(directory) / "run"
            train_text(dataclasses.replace(CONFIG, model=model_config, out=out))
            seconds = {row["step"]: row["seconds"] for row in read_metrics(out) if "train_bpc" in row}
        return ((seconds[STEPS] - seconds[WARM_UP]) / (STEPS - WARM_UP),)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    arguments = parser.parse_args()
    rows = []
    for layers, units in ((36, 64), (36, 128)):
        model = TextModel(layers, units)
        (alone,), (together,) = best_of([bare(model), whole(model)], 6, 0)
        added = together / alone - 1
        verdict = f"{100 * added:+.1f} % (aim {100 * AIM:.0f} %: {'met' if added <= AIM else 'missed'})"
        rows.append([f"{layers} x {units}", "bare loop", f"{1000 * alone:.1f}", ""])
        rows.append([f"{layers} x {units}", "bipolar train text", f"{1000 * together:.1f}", verdict])
    table = markdown_table(["layers x units", "loop", "ms a step", "added"], rows)
    text = f"{machine()}; float32, batch {CONFIG.batch_size}, {CONFIG.window} steps.\n\n{table}"
    print(text)
    if arguments.record:
        record("text", text)


if __name__ == "__main__":
    main()
