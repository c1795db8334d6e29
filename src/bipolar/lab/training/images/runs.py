"""Runs on images: training and evaluation."""

from pathlib import Path
from typing import Any

import torch

from bipolar.lab.errors import UsageError
from bipolar.lab.training.exported import export_if_missing
from bipolar.lab.training.images.config import ImageConfig
from bipolar.lab.training.images.search import found_in, search
from bipolar.lab.training.images.task import image_task
from bipolar.lab.training.loop import train
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.runs import load_config, prepared
from bipolar.lab.training.trained import as_written, trained_weights
from bipolar.models._load import check_sizes


def train_images(config: ImageConfig, *, show: bool = True) -> dict[str, Any]:
    """Trains by a configuration, from the beginning or from the last checkpoint; returns ``result.json``."""
    config = prepared(config)
    if config.search:
        return search(config, show)
    task = image_task(config)
    return train(config, task, show=show, **task.about)


def evaluate_images(run: str | Path, split: str, data_dir: Path | None = None) -> dict[str, float]:
    """The metrics of a run's last model on a split, and the error over the views that the run was tested on."""
    if split not in ("train", "test"):
        raise UsageError(f"--split {split}: expected one of train, test")
    run = found_in(Path(run))
    config = load_config(ImageConfig, run, data_dir)
    if config.search:
        raise UsageError(f"{run}: the search has not ended yet; evaluate one of its runs, {run}/lr-...")
    weights = trained_weights(run)
    task = image_task(config, initialise=False)
    with torch.random.fork_rng(devices=[]), as_written(run):
        check_sizes(vars(config.model), weights)
        task.setup(Machine(accelerator="auto", precision=config.machine.precision).fabric())
        task.model.load_state_dict(weights)
    task.model.eval()
    export_if_missing(task, run)
    pictures = task.train if split == "train" else task.tested
    error, loss = task.evaluate(pictures)
    found = {f"{split}_error": error, f"{split}_loss": loss}
    return (
        found if config.views == "one" else found | {f"views_{split}_error": task.evaluate(pictures, config.views)[0]}
    )
