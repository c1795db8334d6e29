"""The tables and figures of the paper, by name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from bipolar.lab.paper import figure1, figure2, table1
from bipolar.lab.paper.experiment import Experiment, Scale, reproduce

EXPERIMENTS = {experiment.name: experiment for experiment in (table1.EXPERIMENT,)}


def _drawn(draw: Callable[[Path], list[Path]], out: Path, scale: Scale, data_dir: Path | None) -> list[Path]:
    """What needs no training looks the same at every scale."""
    return draw(out)


def _trained(experiment: Experiment, out: Path, scale: Scale, data_dir: Path | None) -> list[Path]:
    return [reproduce(experiment, out, scale=scale, data_dir=data_dir)]


#: What ``bipolar reproduce`` can make: from the directory to write to, the scale and the data directory to the files.
ITEMS: dict[str, Callable[[Path, Scale, Path | None], list[Path]]] = {
    "figure1": partial(_drawn, figure1.reproduce),
    "figure2": partial(_drawn, figure2.reproduce),
    **{name: partial(_trained, experiment) for name, experiment in EXPERIMENTS.items()},
}
