"""Experiments as data: which runs, and what the paper says. Runs are shared, resumed, and never repeated."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from matplotlib.figure import Figure

from bipolar.figures import save_all
from bipolar.files import write_json
from bipolar.lab.provenance import provenance
from bipolar.lab.training.loop import read_metrics
from bipolar.lab.training.text import TextConfig, to_json, train_text

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
    runs: Callable[[Scale], Mapping[str, TextConfig]]
    #: from the outcomes to what is recorded, next to the published values
    collect: Callable[[Mapping[str, Outcome]], dict[str, Any]]
    published: Mapping[str, Any]
    #: the picture, from what was collected
    draw: Callable[[dict[str, Any]], Figure] | None = None


def directory_of(config: TextConfig, runs: Path) -> Path:
    """The directory of a run: the same for the same configuration, whichever experiment asks for it."""
    given, default = to_json(config.filled()), to_json(TextConfig().filled())
    differing = {name: value for name, value in given.items() if value != default[name]}
    model = {name: value for name, value in given["model"].items() if value != default["model"][name]}
    content = json.dumps(differing | {"model": model}, sort_keys=True).encode()
    m = config.model
    activation = m.nonlinearity if m.cell == "stack" else m.cell
    readable = f"{Path(config.data).stem}-{m.num_layers}x{m.hidden_size}-{activation}"
    return runs / f"{readable}-{hashlib.sha256(content).hexdigest()[:10]}"


def perform(config: TextConfig, runs: Path, data_dir: Path | None) -> Outcome:
    """Runs a configuration, or goes on with it, unless it has been run to its end."""
    out = directory_of(config, runs)
    if not (out / "result.json").exists():
        train_text(dataclasses.replace(config, out=out, data_dir=data_dir))
    stored = json.loads((out / "config.json").read_text(encoding="utf-8"))
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    origin = {name: stored.get(name) for name in ("commit", "machine", "versions")}
    return Outcome(stored["config"], result, read_metrics(out), origin)


def reproduce(experiment: Experiment, out: Path, *, scale: Scale = "quick", data_dir: Path | None = None) -> list[Path]:
    """Performs an experiment, writing what there is after every run; returns the paths of the JSON and the picture."""
    configs = experiment.runs(scale)
    path = out / f"{experiment.name}.json"
    paths = [path]
    outcomes: dict[str, Outcome] = {}
    for i, (name, config) in enumerate(configs.items()):
        print(f"{experiment.name}, {scale}: {name} ({i + 1} of {len(configs)})", flush=True)
        outcomes[name] = perform(config, out / "runs", data_dir)
        results = experiment.collect(outcomes)
        record = {
            "item": experiment.name,
            "title": experiment.title,
            "scale": scale,
            "complete": len(outcomes) == len(experiment.runs(scale)),
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


def draw_losses(
    curves: Mapping[str, Any], title: str, look: Callable[[str], tuple[str, str, str]], top: float
) -> Figure:
    """What :func:`train_curves` collected as one picture; ``look`` gives a run's colour, line style and label."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, run in curves.items():
        steps, losses = zip(*run["train_bpc"], strict=True) if run["train_bpc"] else ((), ())
        color, style, label = look(name)
        end = "" if run["status"] == "finished" else " (did not converge)"
        axes.plot(steps, losses, style, color=color, linewidth=1.2, label=label + end)
    axes.set(xlabel="step", ylabel="training loss (BPC)", title=title)
    axes.set_ylim(top=min(top, axes.get_ylim()[1]))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    return figure
