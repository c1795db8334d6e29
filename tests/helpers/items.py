"""An item small enough to be reproduced in a second."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bipolar.lab.reproduce.executors import Executor, one_after_another
from bipolar.lab.reproduce.item import Item, Training
from bipolar.lab.reproduce.reproduction import Reproduction
from bipolar.lab.training.text import TextConfig, TextModel

TINY = TextConfig(
    "python-docs", TextModel(4, 8), max_steps=4, batch_size=8, window=10, max_valid_windows=2, checkpoint_every=2
)


def tiny(name: str = "tiny", seeds: int = 1, steps: int = 4, activations: Sequence[str] = ("relu", "belu")) -> Training:
    base = replace(TINY, max_steps=steps)
    configs = {kind: replace(base, model=replace(base.model, nonlinearity=kind)) for kind in activations}
    return Training(
        name=name,
        title="A tiny one",
        published={"relu": 1.0},
        runs=lambda _: configs,
        collect=lambda outcomes: {k: o.result.get("best_valid_bpc") for k, o in outcomes.items()},
        seeds={"quick": seeds, "small": 1, "paper": 1},
    )


def reproduce(item: Item, out: Path, executor: Executor = one_after_another, **options: Any) -> dict[str, Any]:
    """The record of an item, at the quick scale."""
    path, *_ = Reproduction([item], "quick", out, **options).run(executor)
    record: dict[str, Any] = json.loads(path.read_text())
    return record
