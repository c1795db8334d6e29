"""Run directories: their ``config.json``, and what may change when a run goes on."""

import dataclasses
from pathlib import Path
from typing import Any

from bipolar._tools.files import read_json
from bipolar.lab.errors import UsageError
from bipolar.lab.training.config import Config
from bipolar.lab.training.machine import Machine

#: Settings that may be given when a run goes on: its length, and where it computes.
MAY_CHANGE = ("max_steps", "max_epochs", "machine")
#: The part of ``machine`` that may not: it changes the results.
PRECISION = "precision"


def stored(run: str | Path) -> dict[str, Any]:
    """The ``config.json`` of a run."""
    try:
        values: dict[str, Any] = read_json(Path(run) / "config.json")
        if not isinstance(values["config"], dict) or not isinstance(values["task"], str):  # every run has both
            raise TypeError("its config.json is not as it was written")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{run}: not the directory of a run ({error})") from None
    return values


def load_config(kind: type[Config], run: str | Path, data_dir: Path | None = None) -> Config:
    """The configuration of a run; its data are in ``data_dir``, else where they were, if they still are."""
    run, values = Path(run), stored(run)
    if values["task"] != kind.task:
        raise UsageError(f"{run}: a run of {values['task']}, not of {kind.task}")
    try:
        config = kind.from_json(values["config"] | _place_of_start(values))
    except (TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{run / 'config.json'}: not as it was written ({str(error)[:200]})") from None
    before = values.get("data_dir")
    if data_dir is None and isinstance(before, str) and Path(before).is_dir():
        data_dir = Path(before)
    return dataclasses.replace(config, out=run, data_dir=data_dir)


def _place_of_start(values: dict[str, Any]) -> dict[str, str]:
    """The directory of the run that another one started from, where its ``config.json`` knows it."""
    origin = values.get("start")
    return {"start": origin["directory"]} if isinstance(origin, dict) and "directory" in origin else {}


def length_of(values: dict[str, Any]) -> tuple[int | None, int | None]:
    """The length of a run, from its ``config.json``: epochs and steps at most."""
    return values["config"].get("max_epochs"), values["config"].get("max_steps")


def prepared(config: Config) -> Config:
    """The configuration, or with ``resume`` that of the run to go on with; checked, and sure of its directory."""
    if config.resume is not None:
        config = _resumed(config, config.resume)
        config.check()
        return config
    config.check()
    out = config.directory
    if (out / "config.json").exists() and load_config(type(config), out).to_json() != config.to_json():
        raise UsageError(
            f"--out {out}: there is another run here; --resume {out} to go on with it, or choose another --out"
        )
    return config


def _resumed(given: Config, run: Path) -> Config:
    """The configuration of a run, with the length and the machine that were given."""
    default, config = type(given)(), load_config(type(given), run, given.data_dir)
    plain = dataclasses.replace(given, resume=None, data_dir=None)
    refused = [name for name in _changed(plain, default) if name.split(".")[0] not in MAY_CHANGE]
    refused += [PRECISION] if given.machine.precision != Machine().precision else []
    if refused:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in refused)
        raise UsageError(
            f"{names}: --resume goes on with a run as it was configured; leave it out, or start another. Only its "
            "length (--max-steps, --max-epochs) and its machine (--accelerator, --devices, --num-nodes) may change"
        )
    moved = {f.name: getattr(given.machine, f.name) for f in dataclasses.fields(Machine)}
    moved = {name: value for name, value in moved.items() if value != getattr(Machine(), name)}
    config = dataclasses.replace(config, machine=dataclasses.replace(config.machine, **moved))
    if given.max_steps is None and given.max_epochs is None:
        return config
    ended = result_of(run)
    if "exported" in ended:
        raise UsageError(f"{run}: an exported run, without a checkpoint to go on from; start another")
    if ended.get("status") == "did not converge":
        raise UsageError(f"{run}: this run did not converge, and a longer one would begin as it did; start another")
    # One of the two says the whole length: the other one was for the run as it was. An epoch has a step at least.
    epochs = max(config.length.max_epochs, given.max_steps or 0) if given.max_epochs is None else given.max_epochs
    return dataclasses.replace(config, max_steps=given.max_steps, max_epochs=epochs)


def _changed(given: Any, default: Any) -> list[str]:
    """The settings that are not default, as flags name them: those of the model with its name, others without one."""
    names = []
    for field in dataclasses.fields(given):
        ours, theirs = getattr(given, field.name), getattr(default, field.name)
        if ours == theirs:
            continue
        inner = _changed(ours, theirs) if dataclasses.is_dataclass(ours) and field.name != "machine" else None
        prefix = "model." if field.name == "model" else ""
        names += [field.name] if inner is None else [prefix + name for name in inner]
    return names


def result_of(run: Path) -> dict[str, Any]:
    """The ``result.json`` of a run; empty if it has not ended, or the file is damaged."""
    try:
        result = read_json(run / "result.json")
    except (OSError, ValueError):
        return {}
    return result if isinstance(result, dict) else {}
