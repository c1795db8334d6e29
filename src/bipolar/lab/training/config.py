"""The settings that all runs have in common."""

import dataclasses
import hashlib
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from bipolar.lab.data.places import place_of
from bipolar.lab.errors import UsageError
from bipolar.lab.training.flags import IntFlag, PathFlag
from bipolar.lab.training.length import EPOCHS, Length
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.update import LARGEST, Update

Config = TypeVar("Config", bound="RunConfig")

#: More layers than this are a mistake, and take hours to build.
DEEPEST = 100_000
#: Settings of the recipe that earlier versions lack, left out unless given: runs are found by all their settings.
LATER = ("average", "rescues")
#: The longest part of a directory's name that lists settings; a longer one gives way to its digest.
READABLE = 100


@dataclass(frozen=True, kw_only=True)
class RunConfig(ABC):
    """The settings that all runs have in common.

    A field holds the value that was given, or None without one. Defaults that depend on other settings have
    properties of their own, such as :attr:`directory`, so that they stand in one place and are never None.
    """

    #: the kind of run, as ``config.json`` calls it
    task: ClassVar[str]
    #: the data sets that have a name, and what else ``data`` may be the path of
    data_names: ClassVar[tuple[str, ...]]
    data_kind: ClassVar[Literal["file", "directory"]]
    #: settings that are part of the name
    named: ClassVar[tuple[str, ...]]

    data: str = ""
    machine: Annotated[Machine, tyro.conf.arg(name="")] = field(default_factory=Machine)
    """The devices and the precision."""
    update: Annotated[Update, tyro.conf.arg(name="")] = field(default_factory=Update)
    """The recipe."""
    out: PathFlag = None
    """The directory of the run. Default: runs/ and its data, model, seed, and settings that are not the default."""
    resume: PathFlag = None
    """The directory of a run to go on with, as it was configured. With --max-steps or --max-epochs a finished run goes
    on to that length; --accelerator, --devices and --num-nodes move it to another machine."""
    data_dir: PathFlag = None
    """Where the data is. Default: the environment variable BIPOLAR_DATA, else ./data; of a run that goes on, where it
    was."""
    max_epochs: IntFlag = None
    """Epochs at most. Default: 200."""
    max_steps: IntFlag = None
    """Steps at most. Default: those of the epochs."""
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
        """The directory of the run: ``out``, or one in ``runs`` by its name and whatever else sets it apart."""
        return self.out or Path("runs") / f"{self.name}{self._apart}"

    @property
    def _apart(self) -> str:
        """The settings besides the name that are not the default, such as ``-lr-0.001-max-steps-300``."""
        given, default = _flat(self.to_json()), _flat(type(self)(data=self.data).to_json())
        differing = {key: value for key, value in given.items() if value != default.get(key) and key not in self.named}
        if self.data not in self.data_names and Path(self.data).name != self.data:  # there may be others of its name
            differing["in"] = hashlib.sha256(self.data.encode()).hexdigest()[:4]
        text = "".join(f"-{key}-{value}" for key, value in differing.items())
        text = re.sub(r"[^\w.+]+", "-", text.replace("_", "-")).rstrip("-")
        return text if len(text) <= READABLE else f"-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    @property
    def place(self) -> Path | None:
        """The directory where the data are now, if they need one."""
        return place_of(self.data, self.data_dir, self.data_names, self.data_kind)

    @property
    def length(self) -> Length:
        return Length(
            max_epochs=EPOCHS if self.max_epochs is None else self.max_epochs,
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
        self.update.check()
        _ = self.place  # a file of one's own has to be there

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
        import torch  # takes seconds, which the help and errors of other settings need not wait for

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
        values["max_epochs"] = self.length.max_epochs
        for name in LATER:
            if values["update"][name] is None:
                del values["update"][name]
        plain: dict[str, Any] = json.loads(json.dumps(values))
        return plain

    @classmethod
    def from_json(cls: type[Config], values: dict[str, Any]) -> Config:
        """The inverse of :meth:`to_json`: lists become tuples again, and dictionaries dataclasses."""
        config: Config = _of_json(cls, values)
        return config


def described(config: RunConfig) -> dict[str, Any]:
    """A configuration as ``config.json`` begins with it: the kind of run, the settings, and where the data are."""
    place = config.place
    values = {"task": config.task, "config": config.to_json()}
    return values if place is None else values | {"data_dir": str(place)}


def _of_json(kind: Any, values: dict[str, Any]) -> Any:
    """The dataclass of a kind, and those of its groups."""
    kinds: dict[str, Any] = {f.name: f.default_factory for f in dataclasses.fields(kind)}
    types = get_type_hints(kind)
    parts = {name: _of_json(kinds[name], value) for name, value in values.items() if isinstance(value, dict)}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    given = values | parts | lists
    for name, value in given.items():
        if name in types and not _fits(value, types[name]):
            raise TypeError(f"{name}: {value!r}")
    return kind(**given)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value out of JSON is of the type of a field."""
    if get_origin(kind) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(kind))
    if get_origin(kind) is Literal:
        return value in get_args(kind) and not isinstance(value, bool)
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    if kind is float:
        return isinstance(value, float | int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """The settings without their groups, lists as texts."""
    flat = {key: value for key, value in values.items() if not isinstance(value, dict)}
    for group in (value for value in values.values() if isinstance(value, dict)):
        flat |= _flat(group)
    return {k: "-".join(map(str, v)) if isinstance(v, list) else v for k, v in flat.items()}
