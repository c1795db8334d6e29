"""A run: how it is configured, and the directory where it is kept."""

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import torch
import tyro

from bipolar.lab.errors import UsageError
from bipolar.lab.training.loop import Length, train
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.task import Task

Config = TypeVar("Config", bound="RunConfig")

#: Rates from here on overflow in single precision before they can be told from what diverges anyway.
LARGEST = 1e9


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What all runs have in common."""

    #: what is trained, as ``config.json`` calls it
    task: ClassVar[str]

    machine: Annotated[Machine, tyro.conf.arg(name="")] = field(default_factory=Machine)
    """Where it is computed."""
    out: Path | None = None
    """The directory of the run. Default: runs/ and what distinguishes it."""
    resume: Path | None = None
    """The directory of a run to go on with, as it was configured."""
    data_dir: Path | None = None
    """Where the data is. Default: the environment variable BIPOLAR_DATA, else ./data."""
    max_epochs: int = 200
    """Epochs at most."""
    max_steps: int | None = None
    """Steps at most."""
    batch_size: int = 128
    """The batch, over all devices together."""
    patience: int = 1000
    """Steps within which a run has to be better than a uniform guess."""
    seed: int = 1
    """The seed of everything random."""
    checkpoint_every: int = 200
    """Steps between checkpoints, at most: sooner if a second has passed, and saving takes little of the time."""
    log_every: int = 10
    """Steps between lines of metrics."""

    def filled(self: Config) -> Config:
        """With a value wherever nothing was given."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises a ``UsageError`` about what cannot be."""
        counts = ("max_epochs", "max_steps", "batch_size", "checkpoint_every", "log_every", "patience")
        for name in counts:
            self.at_least(name, 1)
        if not 0 <= self.seed < 2**31:
            raise UsageError(f"--seed {self.seed}: expected 0 to {2**31 - 1}")

    def at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is not None and value < least:
            raise UsageError(f"--{name.replace('_', '-')} {value}: expected at least {least}")

    def positive(self, name: str) -> None:
        value = getattr(self, name)
        if value is not None and not 0 < value < LARGEST:
            raise UsageError(f"--{name.replace('_', '-')} {value}: expected a positive number, below {LARGEST:g}")

    def check_model(self, build: Callable[[], object]) -> None:
        """Builds the model without memory; what it says about its arguments is about those of the command."""
        try:
            with torch.device("meta"):
                build()
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:
            named = re.match(r"([a-z_]+(?:, [a-z_]+)*)(: .*)", str(error), re.DOTALL)
            raise UsageError(
                f"--model.{named[1].replace('_', '-')}{named[2]}" if named else f"--model: {error}"
            ) from None

    @property
    def length(self) -> Length:
        return Length(
            max_epochs=self.max_epochs,
            max_steps=self.max_steps,
            checkpoint_every=self.checkpoint_every,
            log_every=self.log_every,
            patience=self.patience,
        )

    def to_json(self) -> dict[str, Any]:
        """Without what differs from machine to machine: where it is, and where the data is."""
        values = dataclasses.asdict(self)
        for name in ("out", "resume", "data_dir"):
            del values[name]
        plain: dict[str, Any] = json.loads(json.dumps(values))
        return plain

    @classmethod
    def from_json(cls: type[Config], values: dict[str, Any]) -> Config:
        """What :meth:`to_json` made: lists are tuples again, and parts what they were."""
        kinds = {f.name: f.default_factory for f in dataclasses.fields(cls)}
        parts = {name: kinds[name](**value) for name, value in values.items() if isinstance(value, dict)}  # type: ignore[operator]
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**values | parts | lists)


def stored(run: Path) -> dict[str, Any]:
    """The ``config.json`` of a run."""
    try:
        values: dict[str, Any] = json.loads((run / "config.json").read_text(encoding="utf-8"))
        values["config"], values["task"]  # which every run has
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{run}: not the directory of a run ({error})") from None
    return values


def load_config(kind: type[Config], run: Path, data_dir: Path | None = None) -> Config:
    """The configuration of a run."""
    values = stored(run)
    if values["task"] != kind.task:
        raise UsageError(f"{run}: a run of {values['task']}, not of {kind.task}")
    try:
        config = kind.from_json(values["config"])
    except (TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{run / 'config.json'}: not as it was written ({error})") from None
    return dataclasses.replace(config, out=run, data_dir=data_dir)


def prepared(config: Config) -> Config:
    """A configuration, or that of the run that it goes on with, complete and checked."""
    if config.resume is not None:
        default, given = type(config)(), dataclasses.replace(config, resume=None, data_dir=None)
        changed = [f.name for f in dataclasses.fields(config) if getattr(given, f.name) != getattr(default, f.name)]
        if changed:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
            raise UsageError(
                f"{names}: --resume goes on with a run as it was configured; leave it out, or start another"
            )
        config = load_config(type(config), config.resume, data_dir=config.data_dir)
    config = config.filled()
    config.check()
    out = config.out or Path("runs")
    if (out / "config.json").exists() and stored(out)["config"] != config.to_json():
        raise UsageError(
            f"--out {out}: there is another run here; --resume {out} to go on with it, or choose another --out"
        )
    return config


def perform(config: RunConfig, task: Task, *, show: bool = True, **more: Any) -> dict[str, Any]:
    """Trains by a prepared configuration, and shows progress or not; ``more`` is kept in ``config.json``.

    Returns ``result.json``.
    """
    values: dict[str, Any] = {"task": config.task, "config": config.to_json(), **more}
    return train(task, values, config.out or Path("runs"), config.length, config.machine, config.seed, show)
