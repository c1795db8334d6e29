"""The tables and figures of the paper, by name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from bipolar.lab.paper import (
    aliasing,
    dropout,
    figure1,
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
    shortcut,
    table1,
    table2,
    table5,
    text8,
)
from bipolar.lab.paper.experiment import Experiment, Scale, reproduce

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        table1.EXPERIMENT,
        table2.EXPERIMENT,
        text8.TABLE3,
        text8.TABLE4,
        figure5.EXPERIMENT,
        figure6.EXPERIMENT,
        table5.EXPERIMENT,
        figure3.EXPERIMENT,
        aliasing.EXPERIMENT,
        dropout.EXPERIMENT,
        shortcut.EXPERIMENT,
    )
}


def _drawn(draw: Callable[[Path], list[Path]], out: Path, scale: Scale, data_dir: Path | None) -> list[Path]:
    """What needs no training looks the same at every scale."""
    return draw(out)


def _trained(experiment: Experiment, out: Path, scale: Scale, data_dir: Path | None) -> list[Path]:
    return reproduce(experiment, out, scale=scale, data_dir=data_dir)


#: What ``bipolar reproduce`` can make: from the directory to write to, the scale and the data directory to the files.
ITEMS: dict[str, Callable[[Path, Scale, Path | None], list[Path]]] = {
    "figure1": partial(_drawn, figure1.reproduce),
    "figure2": partial(_drawn, figure2.reproduce),
    "figure4": figure4.reproduce,
    **{name: partial(_trained, experiment) for name, experiment in EXPERIMENTS.items()},
}
