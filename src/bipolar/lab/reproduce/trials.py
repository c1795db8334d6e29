"""Trials: single runs, which items share, and which are resumed and never repeated."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bipolar._tools.files import read_json, write_json
from bipolar.lab.provenance import provenance
from bipolar.lab.reproduce.outcomes import Outcome
from bipolar.lab.training.config import RunConfig, described
from bipolar.lab.training.images import ImageConfig, found_in, train_images
from bipolar.lab.training.journal import read_metrics
from bipolar.lab.training.text import TextConfig, train_text


@dataclass(frozen=True)
class Trial:
    """A run and its directory."""

    config: RunConfig
    directory: Path
    #: its outcome by the record of an item, which counts where the directory has none
    recorded: Outcome | None = None

    @property
    def ready(self) -> bool:
        """Whether the run that it starts from, if any, is there."""
        start = _start_of(self.config)
        return start is None or (Path(start) / "result.json").exists()

    @property
    def done(self) -> bool:
        """Whether it has an outcome; if not, the trial is run or resumed."""
        return self.recorded is not None or self.ran

    @property
    def ran(self) -> bool:
        """Whether its result is in its directory, and whole."""
        try:
            return isinstance(_read(self.directory / "result.json"), dict) and bool(
                _read(self.directory / "config.json")["config"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def outcome(self) -> Outcome:
        if self.recorded is not None and not self.ran:
            return self.recorded
        stored = _read(self.directory / "config.json")
        origin = {name: stored.get(name) for name in ("commit", "machine", "versions")}
        result = _read(self.directory / "result.json")
        return Outcome(stored["config"], result, read_metrics(found_in(self.directory)), origin)


def trial_of(config: RunConfig, runs: Path) -> Trial:
    """The trial of a configuration; its directory depends on nothing else, so that items share it."""
    given, default = config.to_json(), type(config)().to_json()
    differing = {name: value for name, value in given.items() if value != default.get(name)}
    model = {name: value for name, value in given["model"].items() if value != default["model"].get(name)}
    content = json.dumps(differing | {"model": model}, sort_keys=True).encode()
    readable = config.name.removesuffix(f"-{config.seed}")
    return Trial(config, runs / f"{readable}-{hashlib.sha256(content).hexdigest()[:10]}")


def trials_by_seed(
    configs: Mapping[str, RunConfig],
    seeds: int,
    runs: Path,
    recorded: Mapping[int, Mapping[str, Outcome]],
    candidate: Callable[[str], str] = str,
) -> dict[int, dict[str, Trial]]:
    """The trials of runs by seed and name; after the first seed only those whose first seed is done.

    Args:
        configs: the runs by name, with the first seed
        seeds: the number of seeds
        runs: the directory of the trials' directories
        recorded: outcomes by seed and name that are known without them
        candidate: the candidate of a run, of whose versions the best alone has the other seeds
    """

    def of_seed(seed: int, configs: Mapping[str, RunConfig | None]) -> dict[str, Trial]:
        known, trials = recorded.get(seed, {}), dict[str, Trial]()
        given = {name: config for name, config in configs.items() if config is not None}
        for name, config in given.items():
            before = _start_of(config)
            placed = config if before is None else _started(config, trials[before])
            trials[name] = dataclasses.replace(trial_of(placed, runs), recorded=known.get(name))
        for name, config in reversed(given.items()):
            before = _start_of(config)
            if before is not None and not trials[name].done and not trials[before].ran:
                trials[before] = dataclasses.replace(trials[before], recorded=None)  # a record has no weights
        return trials

    first = of_seed(1, configs)
    outcomes = {name: trial.outcome() for name, trial in first.items() if trial.done}
    best = {_best_of(names, outcomes) for names in versions(configs, candidate).values()}
    repeated: list[str] = []
    for name, config in configs.items():
        if name in best and _start_of(config) in (None, *repeated):
            repeated.append(name)
    return {1: first} | {
        seed: of_seed(seed, {name: with_seed(configs[name], seed, outcomes[name]) for name in repeated})
        for seed in range(2, seeds + 1)
    }


def _start_of(config: RunConfig) -> str | None:
    """The run that another one of its item starts from, by its name."""
    return config.start if isinstance(config, TextConfig) else None


def _started(config: RunConfig, before: Trial) -> RunConfig:
    """A configuration that starts from another run of its item, with the directory of that one."""
    return dataclasses.replace(cast(TextConfig, config), start=str(before.directory))


def versions(runs: Iterable[str], candidate: Callable[[str], str]) -> dict[str, list[str]]:
    """The names of the runs of each candidate."""
    found: dict[str, list[str]] = {}
    for name in runs:
        found.setdefault(candidate(name), []).append(name)
    return found


def _best_of(names: Sequence[str], outcomes: Mapping[str, Outcome]) -> str | None:
    """The version to repeat with other seeds; None before all have an outcome, or if none of several has converged."""
    if any(name not in outcomes for name in names):
        return None
    if len(names) == 1:
        return names[0]
    errors = {name: outcomes[name].result["best_valid_bpc"] for name in names if outcomes[name].converged}
    return min(errors, key=lambda name: errors[name], default=None)


def run(trial: Trial, data_dir: Path | None, show: bool = True) -> None:
    """Runs or resumes a trial that is not done."""
    if trial.done:
        return
    start = _start_of(trial.config)
    if start is not None and _read(Path(start) / "result.json").get("status") != "finished":
        _give_up(trial, f"{Path(start).name}, from which it starts, did not converge")
        return
    placed = dataclasses.replace(trial.config, out=trial.directory, data_dir=data_dir)
    if isinstance(placed, ImageConfig):
        train_images(placed, show=show)
    else:
        train_text(cast(TextConfig, placed), show=show)
    if not trial.done:
        raise KeyboardInterrupt  # the run was asked to stop, and has saved its state


def _give_up(trial: Trial, reason: str) -> None:
    """Ends a trial before its first step."""
    write_json(trial.directory / "config.json", {**described(trial.config), **provenance()})
    (trial.directory / "metrics.jsonl").touch()
    write_json(
        trial.directory / "result.json", {"status": "did not converge", "step": 0, "reason": reason, "seconds": 0.0}
    )


def with_seed(config: RunConfig, seed: int, first: Outcome) -> RunConfig | None:
    """The same run with another seed; in place of a search, the rate that it found. None if it found none."""
    if isinstance(config, ImageConfig) and config.search:
        return dataclasses.replace(config, seed=seed, search=False, lr=first.result["lr"]) if first.converged else None
    return dataclasses.replace(config, seed=seed)


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = read_json(path)
    return values
