"""Run directories: their ``config.json``, and training in them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from bipolar.lab.errors import UsageError
from bipolar.lab.training.config import Config, RunConfig
from bipolar.lab.training.loop import train
from bipolar.lab.training.task import Task


def stored(run: Path) -> dict[str, Any]:
    """The ``config.json`` of a run."""
    try:
        values: dict[str, Any] = json.loads((run / "config.json").read_text(encoding="utf-8"))
        values["config"], values["task"]  # every run has both
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
    """The configuration, or with ``resume`` that of the run to go on with; checked, and sure of its directory."""
    if config.resume is not None:
        default, given = type(config)(), dataclasses.replace(config, resume=None, data_dir=None)
        changed = [f.name for f in dataclasses.fields(config) if getattr(given, f.name) != getattr(default, f.name)]
        if changed:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
            raise UsageError(
                f"{names}: --resume goes on with a run as it was configured; leave it out, or start another"
            )
        config = load_config(type(config), config.resume, data_dir=config.data_dir)
    config.check()
    out = config.directory
    if (out / "config.json").exists() and stored(out)["config"] != config.to_json():
        raise UsageError(
            f"--out {out}: there is another run here; --resume {out} to go on with it, or choose another --out"
        )
    return config


def perform(config: RunConfig, task: Task, *, show: bool = True, **more: Any) -> dict[str, Any]:
    """Trains ``task`` by a prepared configuration, and shows progress or not; ``more`` goes into ``config.json``.

    Returns ``result.json``.
    """
    values: dict[str, Any] = {"task": config.task, "config": config.to_json(), **more}
    return train(task, values, config.directory, config.length, config.machine, config.seed, show)
