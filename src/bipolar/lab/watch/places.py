"""Directories of runs below a directory. Without heavy imports: the command asks before it shows anything."""

import os
from pathlib import Path

from bipolar.lab.errors import UsageError
from bipolar.lab.training.runs import stored

METRICS = "metrics.jsonl"
#: Directories within a run that hold no runs.
WITHIN = ("checkpoints", "tensorboard", "model")


def runs_in(directory: Path) -> list[Path]:
    """The runs in a directory, itself included, by name. A search stands for itself only before its first attempt."""
    found: list[Path] = []
    for place, below, files in os.walk(directory):
        if METRICS in files or ("config.json" in files and _is_run(Path(place))):
            below[:] = [name for name in below if name not in WITHIN]
            found.append(Path(place))
    searches = {parent for run in found for parent in run.parents if not (parent / METRICS).exists()}
    return sorted(run for run in found if run not in searches)


def _is_run(directory: Path) -> bool:
    try:
        stored(directory)
    except UsageError:
        return False
    return True
