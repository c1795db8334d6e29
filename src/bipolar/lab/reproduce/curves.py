"""Training curves of text runs, as results, as a table and as a picture."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bipolar.lab.reproduce.outcomes import DNC, Outcome, Results, late
from bipolar.lab.reproduce.tables import Table, flat_table


def train_curves(outcomes: Mapping[str, Outcome]) -> Results:
    """The training loss of each run by step, and how the run ended."""
    return {
        name: {
            "status": outcome.result["status"],
            "reason": outcome.result.get("reason"),
            "train_bpc": outcome.curve("train_bpc"),
            "first_cut": _first_cut(outcome.curve("lr")),
            "best_valid_bpc": outcome.result.get("best_valid_bpc") if outcome.converged else DNC,
            "last_train_bpc": outcome.last("train_bpc") if outcome.converged else DNC,
        }
        for name, outcome in outcomes.items()
    }


def _first_cut(rates: Sequence[tuple[int, float]]) -> int | None:
    """The step at which the learning rate was first cut, if it was."""
    return next((step for (step, rate), (_, before) in zip(rates[1:], rates, strict=False) if rate < before), None)


def table_of_curves(seeds: Sequence[Results]) -> list[Table]:
    """The ends of the runs that :func:`train_curves` collected."""
    columns = {"best_valid_bpc": "validation BPC", "last_train_bpc": "training BPC, last tenth", "status": "status"}
    # from the curves: a record may be older than this meaning of a run's end
    ends = [{name: run | _end(run) for name, run in seed.items()} for seed in seeds]
    return [flat_table("How the runs ended", ends, columns)]


def _end(run: Mapping[str, Any]) -> Results:
    converged = run["status"] == "finished" and isinstance(run.get("last_train_bpc"), float)
    return {"last_train_bpc": late(run["train_bpc"])} if converged else {}


def draw_run(axes: Axes, run: Mapping[str, Any], label: str, **style: Any) -> None:
    """The curve of one run of :func:`train_curves`; its label says if it did not converge."""
    steps, losses = zip(*run["train_bpc"], strict=True) if run["train_bpc"] else ((), ())
    end = "" if run["status"] == "finished" else f" ({DNC})"
    axes.plot(steps, losses, linewidth=1.2, label=label + end, **style)


def draw_losses(
    curves: Mapping[str, Any], title: str, look: Callable[[str], tuple[str, str, str]], top: float
) -> Figure:
    """All runs of :func:`train_curves` in one picture; ``look`` gives a run's colour, line style and label."""
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


def draw_panels(
    curves: Mapping[str, Any],
    panels: Sequence[str],
    panel_of: Callable[[str], str],
    look: Callable[[str], Mapping[str, Any]],
    top: float,
) -> Figure:
    """The runs of :func:`train_curves` in panels side by side; ``look`` gives a run's label, colour and line style."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
        for name, run in curves.items():
            if panel_of(name) == panel:
                draw_run(axes, run, **look(name))
        axes.set(title=panel, xlabel="step", ylabel="training loss (BPC)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0.0), min(high, top))  # of all panels, once all are drawn
    return figure


def shade(place: int, places: int) -> tuple[float, float, float]:
    """A shade of vermilion, from dark to bright, for one of several places in an order."""
    light = 0.25 + 0.75 * place / max(places - 1, 1)
    return 0.84 * light, 0.37 * light, 0.0
