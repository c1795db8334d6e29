"""The settings that all runs have in common."""

import dataclasses
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import torch
import tyro

from bipolar.lab.errors import UsageError
from bipolar.lab.training.loop import Length
from bipolar.lab.training.machine import Machine

Config = TypeVar("Config", bound="RunConfig")

#: Rates and factors from here on overflow in single precision, if training has not diverged before.
LARGEST = 1e9


@dataclass(frozen=True, kw_only=True)
class RunConfig(ABC):
    """The settings that all runs have in common.

    A field holds the value that was given, or None without one. Defaults that depend on other settings have
    properties of their own, such as :attr:`directory`, so that they stand in one place and are never None.
    """

    #: the kind of run, as ``config.json`` calls it
    task: ClassVar[str]

    machine: Annotated[Machine, tyro.conf.arg(name="")] = field(default_factory=Machine)
    """The devices and the precision."""
    out: Path | None = None
    """The directory of the run. Default: runs/ and its data, model and seed."""
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

    @property
    @abstractmethod
    def name(self) -> str:
        """The data, the model and the seed, such as ``ptb-36x256-belu-1``."""

    @property
    def directory(self) -> Path:
        """The directory of the run: ``out``, or one in ``runs`` by its name."""
        return self.out or Path("runs") / self.name

    @property
    def length(self) -> Length:
        return Length(
            max_epochs=self.max_epochs,
            max_steps=self.max_steps,
            checkpoint_every=self.checkpoint_every,
            log_every=self.log_every,
            patience=self.patience,
        )

    def check(self) -> None:
        """Raises a ``UsageError`` if a setting is out of its range."""
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
        """Builds the model without memory, and turns an error about an argument into one about its flag."""
        try:
            with torch.device("meta"):
                build()
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:
            named = re.match(r"([a-z_]+(?:, [a-z_]+)*)(: .*)", str(error), re.DOTALL)
            raise UsageError(
                f"--model.{named[1].replace('_', '-')}{named[2]}" if named else f"--model: {error}"
            ) from None

    def to_json(self) -> dict[str, Any]:
        """The settings, defaults filled in; without directories, which differ from machine to machine."""
        values = dataclasses.asdict(self)
        for name in ("out", "resume", "data_dir"):
            del values[name]
        plain: dict[str, Any] = json.loads(json.dumps(values))
        return plain

    @classmethod
    def from_json(cls: type[Config], values: dict[str, Any]) -> Config:
        """The inverse of :meth:`to_json`: lists become tuples again, and dictionaries dataclasses."""
        kinds = {f.name: f.default_factory for f in dataclasses.fields(cls)}
        parts = {name: kinds[name](**value) for name, value in values.items() if isinstance(value, dict)}  # type: ignore[operator]
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**values | parts | lists)
