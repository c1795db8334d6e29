"""Experiments as data: which runs, and what the paper says. Runs are shared, resumed, and never repeated."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bipolar.figures import save_all
from bipolar.files import write_json
from bipolar.lab.data import DataError
from bipolar.lab.provenance import provenance
from bipolar.lab.training.images import ImageConfig, found_in, image_task, train_images
from bipolar.lab.training.journal import duration
from bipolar.lab.training.loop import Task, read_metrics, seconds_per_step
from bipolar.lab.training.runs import RunConfig
from bipolar.lab.training.text import TextConfig, text_task, train_text

Scale: TypeAlias = Literal["quick", "small", "paper"]
SCALES: tuple[Scale, ...] = ("quick", "small", "paper")


@dataclass(frozen=True)
class Outcome:
    """What came of a run: ``result.json``, the rows of its metrics, and what it ran on."""

    config: dict[str, Any]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    provenance: dict[str, Any]

    def curve(self, name: str) -> list[tuple[int, float]]:
        """Step and value of a metric."""
        return [(row["step"], row[name]) for row in self.metrics if isinstance(row.get(name), float)]

    @property
    def converged(self) -> bool:
        return bool(self.result["status"] == "finished")


@dataclass(frozen=True)
class Experiment:
    """One table or figure: its runs by name, and what becomes of their outcomes."""

    name: str
    #: where it stands in the paper, and what it shows
    title: str
    runs: Callable[[Scale], Mapping[str, RunConfig]]
    #: from the outcomes to what is recorded, next to the published values
    collect: Callable[[Mapping[str, Outcome]], dict[str, Any]]
    published: Mapping[str, Any]
    #: the picture, from what was collected
    draw: Callable[[dict[str, Any]], Figure] | None = None
    #: further runs, which depend on what came of the first ones
    then: Callable[[Scale, Mapping[str, Outcome]], Mapping[str, RunConfig]] = lambda scale, outcomes: {}


def directory_of(config: RunConfig, runs: Path) -> Path:
    """The directory of a run: the same for the same configuration, whichever experiment asks for it."""
    filled = config.filled()
    given, default = filled.to_json(), type(config)().filled().to_json()
    differing = {name: value for name, value in given.items() if value != default[name]}
    model = {name: value for name, value in given["model"].items() if value != default["model"][name]}
    content = json.dumps(differing | {"model": model}, sort_keys=True).encode()
    readable = "" if filled.out is None else filled.out.name.removesuffix(f"-{filled.seed}")
    return runs / f"{readable}-{hashlib.sha256(content).hexdigest()[:10]}"


def perform(config: RunConfig, runs: Path, data_dir: Path | None) -> Outcome:
    """Runs a configuration, or goes on with it, unless it has been run to its end."""
    out = directory_of(config, runs)
    if not (out / "result.json").exists():
        placed = dataclasses.replace(config, out=out, data_dir=data_dir)
        if isinstance(placed, ImageConfig):
            train_images(placed)
        elif isinstance(placed, TextConfig):
            train_text(placed)
    if not (out / "result.json").exists():
        raise KeyboardInterrupt  # it was asked to stop, and has saved what it had
    stored = json.loads((out / "config.json").read_text(encoding="utf-8"))
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    origin = {name: stored.get(name) for name in ("commit", "machine", "versions")}
    return Outcome(stored["config"], result, read_metrics(found_in(out)), origin)


def _announce(experiment: Experiment, configs: list[RunConfig], runs: Path, data_dir: Path | None) -> None:
    """Says how long an experiment will take here, from a few steps of each of its runs that has not ended."""
    to_do = [config for config in configs if not (directory_of(config, runs) / "result.json").exists()]
    seconds = 0.0
    for i, config in enumerate(to_do):
        print(f"{experiment.name}: timing a few steps ({i + 1} of {len(to_do)})", end="\r", flush=True)
        task = task_of(dataclasses.replace(config, data_dir=data_dir))
        each = seconds_per_step(task, config.machine)
        seconds += each * config.total_steps(task.steps_per_epoch)
    print(
        f"{experiment.name}, as published: {len(to_do)} runs to go, about {duration(seconds)} on this machine, "
        "validation and searches not counted",
        flush=True,
    )


def task_of(config: RunConfig) -> Task:
    return image_task(config) if isinstance(config, ImageConfig) else text_task(cast(TextConfig, config))


def result_path(name: str, out: Path, scale: Scale) -> Path:
    """Where the result of an item goes, unless that of another scale is there."""
    path = out / f"{name}.json"
    try:
        before = json.loads(path.read_text(encoding="utf-8"))["scale"]
    except (OSError, ValueError, KeyError):
        return path
    if before != scale:
        raise DataError(f"--out {out}: {path.name} is there already, of the scale {before}; choose another --out")
    return path


def reproduce(experiment: Experiment, out: Path, *, scale: Scale = "quick", data_dir: Path | None = None) -> list[Path]:
    """Performs an experiment, writing what there is after every run; returns the paths of the JSON and the picture."""
    configs = dict(experiment.runs(scale))
    first = len(configs)
    path = result_path(experiment.name, out, scale)
    paths = [path]
    outcomes: dict[str, Outcome] = {}
    if scale == "paper":
        _announce(experiment, list(configs.values()), out / "runs", data_dir)
    while len(outcomes) < len(configs):
        name = list(configs)[len(outcomes)]
        print(f"{experiment.name}, {scale}: {name} ({len(outcomes) + 1} of {len(configs)})", flush=True)
        outcomes[name] = perform(configs[name], out / "runs", data_dir)
        if len(outcomes) == first:
            configs |= experiment.then(scale, outcomes)
        results = experiment.collect(outcomes)
        record = {
            "item": experiment.name,
            "title": experiment.title,
            "scale": scale,
            "complete": len(outcomes) == len(configs),
            "seconds": round(sum(outcome.result.get("seconds", 0.0) for outcome in outcomes.values()), 1),
            **provenance(),
            "published": experiment.published,
            "results": results,
            "runs": {name: {"config": o.config, "result": o.result, **o.provenance} for name, o in outcomes.items()},
        }
        write_json(path, record)
        if experiment.draw is not None:
            paths = [path, *save_all(experiment.draw(results), out / experiment.name)]
    return paths


def train_curves(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """For each run its training loss by step, and how it ended."""
    return {
        name: {
            "status": outcome.result["status"],
            "reason": outcome.result.get("reason"),
            "train_bpc": outcome.curve("train_bpc"),
            "best_valid_bpc": outcome.result.get("best_valid_bpc"),
        }
        for name, outcome in outcomes.items()
    }


def draw_run(axes: Axes, run: Mapping[str, Any], label: str, **style: Any) -> None:
    """One run of what :func:`train_curves` collected; one that did not converge says so."""
    steps, losses = zip(*run["train_bpc"], strict=True) if run["train_bpc"] else ((), ())
    end = "" if run["status"] == "finished" else " (did not converge)"
    axes.plot(steps, losses, linewidth=1.2, label=label + end, **style)


def draw_losses(
    curves: Mapping[str, Any], title: str, look: Callable[[str], tuple[str, str, str]], top: float
) -> Figure:
    """What :func:`train_curves` collected as one picture; ``look`` gives a run's colour, line style and label."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, run in curves.items():
        color, style, label = look(name)
        draw_run(axes, run, label, color=color, linestyle=style)
    axes.set(xlabel="step", ylabel="training loss (BPC)", title=title)
    axes.set_ylim(top=min(top, axes.get_ylim()[1]))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    return figure
