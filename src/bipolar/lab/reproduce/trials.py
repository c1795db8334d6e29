"""Trials: single runs, shared by the items that need them, resumed, and never repeated."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bipolar.lab.reproduce.item import Outcome
from bipolar.lab.training.config import RunConfig
from bipolar.lab.training.images import ImageConfig, found_in, image_task, train_images
from bipolar.lab.training.journal import read_metrics
from bipolar.lab.training.task import Task
from bipolar.lab.training.text import TextConfig, text_task, train_text


@dataclass(frozen=True)
class Trial:
    """A run, and where it is kept."""

    config: RunConfig
    directory: Path

    @property
    def done(self) -> bool:
        """Whether its result is there, and whole; else it is run, or gone on with."""
        try:
            return isinstance(_read(self.directory / "result.json"), dict) and bool(
                _read(self.directory / "config.json")["config"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def outcome(self) -> Outcome:
        stored = _read(self.directory / "config.json")
        origin = {name: stored.get(name) for name in ("commit", "machine", "versions")}
        result = _read(self.directory / "result.json")
        return Outcome(stored["config"], result, read_metrics(found_in(self.directory)), origin)


def trial_of(config: RunConfig, runs: Path) -> Trial:
    """A trial whose directory is the same for the same configuration, whichever item asks for it."""
    given, default = config.to_json(), type(config)().to_json()
    differing = {name: value for name, value in given.items() if value != default[name]}
    model = {name: value for name, value in given["model"].items() if value != default["model"][name]}
    content = json.dumps(differing | {"model": model}, sort_keys=True).encode()
    readable = config.directory.name.removesuffix(f"-{config.seed}")
    return Trial(config, runs / f"{readable}-{hashlib.sha256(content).hexdigest()[:10]}")


def run(trial: Trial, data_dir: Path | None, show: bool = True) -> None:
    """Runs a trial, or goes on with it, unless it has been run to its end."""
    if trial.done:
        return
    placed = dataclasses.replace(trial.config, out=trial.directory, data_dir=data_dir)
    if isinstance(placed, ImageConfig):
        train_images(placed, show=show)
    else:
        train_text(cast(TextConfig, placed), show=show)
    if not trial.done:
        raise KeyboardInterrupt  # it was asked to stop, and has saved what it had


def with_seed(config: RunConfig, seed: int, first: Outcome) -> RunConfig | None:
    """The same with another seed; a search is not repeated, its rate is taken. None if there is no such rate."""
    if isinstance(config, ImageConfig) and config.search:
        return dataclasses.replace(config, seed=seed, search=False, lr=first.result["lr"]) if first.converged else None
    return dataclasses.replace(config, seed=seed)


def task_of(config: RunConfig) -> Task:
    return image_task(config) if isinstance(config, ImageConfig) else text_task(cast(TextConfig, config))


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values
