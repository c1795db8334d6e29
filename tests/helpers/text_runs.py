"""A small text, and runs on it that take seconds."""

import dataclasses
from pathlib import Path
from typing import Any

from bipolar.lab.training.journal import read_metrics
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.text import TextConfig, TextModel

TEXT = "the quick brown fox jumps over the lazy dog. " * 200
MODEL = TextModel(num_layers=4, hidden_size=16, dropout=0.1, recurrent_dropout=0.1, block_dropout=0.1)


def text_config(corpus: Path, out: Path, **options: Any) -> TextConfig:
    defaults: dict[str, Any] = {"batch_size": 4, "window": 10, "lr": 5e-3, "checkpoint_every": 7, "validate_every": 1}
    cpu = Machine(accelerator="cpu")
    return TextConfig(str(corpus), **({"model": MODEL, "machine": cpu, "out": out} | defaults | options))


def options_of(settings: TextConfig) -> list[str]:
    """A configuration as the options of the command."""
    model = dataclasses.asdict(settings.model)
    values = {f"model.{name}": value for name, value in (model | model.pop("rival")).items()}
    values |= {name: getattr(settings, name) for name in ("data", "out", "max_steps", "batch_size", "window", "lr")}
    values |= {name: getattr(settings, name) for name in ("checkpoint_every", "validate_every", "log_every")}
    values |= {name: getattr(settings.machine, name) for name in ("accelerator", "devices")}
    given = {name: value for name, value in values.items() if value is not None and not isinstance(value, bool)}
    return [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def metrics(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run, without the times."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in read_metrics(run)]
