"""The model of a run, as ``bipolar.load`` and ``from_pretrained`` read it."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from bipolar.lab.training.task import Task
from bipolar.models._hub import CONFIG, WEIGHTS, HubMixin
from bipolar.models._load import OF_RUN


def export(model: HubMixin, run: Path) -> Path:
    """Writes a model into the directory of a run; each file is complete or absent."""
    directory, part = run / OF_RUN, run / f"{OF_RUN}.part"
    try:
        # building a model to compare draws no numbers from a run's
        with torch.random.fork_rng(devices=[]), failing_as_others(part):
            model.save_files(part)
        directory.mkdir(exist_ok=True)
        for name in (CONFIG, WEIGHTS):
            (part / name).replace(directory / name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return directory


@contextmanager
def failing_as_others(path: Path) -> Iterator[None]:
    """Raises an ``OSError``, as all else that writes, where safetensors cannot write: it has an error of its own."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise OSError(errno.EIO, f"cannot write ({error})", str(path)) from None


def export_if_missing(task: Task, run: Path) -> None:
    """Writes the model of a run that has none yet, such as one of an earlier version."""
    model = task.portable()
    if model is not None and not (run / OF_RUN / WEIGHTS).exists():
        export(model, run)
