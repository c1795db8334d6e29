"""Items of the paper as data: what to run or compute, what becomes of it, and what the paper says.

An item is declared, not scripted: a :class:`Training` names the runs that it needs and says how to read their outcomes,
a :class:`Computation` needs none. Everything else (running, resuming, sharing runs between items, drawing, reporting)
is the same for all of them, see :mod:`bipolar.lab.reproduce.reproduction`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bipolar.lab.reproduce.comparison import Table, flat_table
from bipolar.lab.training.config import RunConfig

Scale: TypeAlias = Literal["quick", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
#: What they are, for whoever reads the results.
ABOUT_SCALES: dict[Scale, str] = {
    "quick": "data that comes with the packages, and networks and runs so small that all of it takes minutes",
    "small": (
        "real data, but small networks and short runs: for text about 0.3 million parameters (the paper has 4.75 and "
        "16.2 million) and at most two epochs (200), for images a widening factor of 1 (10) and a few epochs (200) on "
        "a part of CIFAR-10"
    ),
    "paper": "as published",
}

#: What an item has found, ready for JSON.
Results: TypeAlias = dict[str, Any]


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

    def last(self, name: str, rows: int = 10) -> float | None:
        """The mean of a metric over its last rows."""
        values = [value for _, value in self.curve(name)[-rows:]]
        return sum(values) / len(values) if values else None

    @property
    def converged(self) -> bool:
        return bool(self.result["status"] == "finished")


@dataclass(frozen=True, kw_only=True)
class Item:
    """One table or figure."""

    name: str
    #: where it stands in the paper, and what it shows
    title: str
    #: what is done and what the names in it mean, for whoever reads the results
    about: str = ""
    #: what the paper says: figures, or a claim
    published: Mapping[str, Any] = field(default_factory=dict)
    #: the picture, from the results of each seed
    draw: Callable[[Sequence[Results]], Figure] | None = None
    #: tables, from the results of each seed
    tables: Callable[[Sequence[Results]], Sequence[Table]] | None = None
    #: what is claimed about it, each with the rule that decides it: :class:`~bipolar.lab.reproduce.verdicts.Claim`
    claims: Sequence[Any] = ()


@dataclass(frozen=True, kw_only=True)
class Training(Item):
    """An item that trains."""

    #: the runs by name, with the first seed
    runs: Callable[[Scale], Mapping[str, RunConfig]]
    #: from the outcomes of one seed to what is recorded, next to the published values
    collect: Callable[[Mapping[str, Outcome]], Results]
    #: how many seeds, unless told otherwise
    seeds: Mapping[Scale, int] = field(default_factory=lambda: {"quick": 1, "small": 1, "paper": 1})


@dataclass(frozen=True, kw_only=True)
class Computation(Item):
    """An item that needs no training."""

    #: from the scale and the data directory to what is recorded
    compute: Callable[[Scale, Path | None], Results]
    #: its settings at a scale
    configuration: Callable[[Scale], Mapping[str, Any]] = lambda scale: {}


#: What takes the place of a number.
DNC = "did not converge"


def train_curves(outcomes: Mapping[str, Outcome]) -> Results:
    """For each run its training loss by step, and how it ended."""
    return {
        name: {
            "status": outcome.result["status"],
            "reason": outcome.result.get("reason"),
            "train_bpc": outcome.curve("train_bpc"),
            "best_valid_bpc": outcome.result.get("best_valid_bpc") if outcome.converged else DNC,
            "last_train_bpc": outcome.last("train_bpc") if outcome.converged else DNC,
        }
        for name, outcome in outcomes.items()
    }


def table_of_curves(seeds: Sequence[Results]) -> list[Table]:
    """What :func:`train_curves` collected, without the curves."""
    columns = {"best_valid_bpc": "validation BPC", "last_train_bpc": "training BPC, last steps", "status": "status"}
    return [flat_table("How the runs ended", seeds, columns)]


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
