"""Runs on text: training, evaluation, and the model of a run."""

from pathlib import Path
from typing import Any

import torch

from bipolar.lab.data.places import SPLITS
from bipolar.lab.errors import UsageError
from bipolar.lab.training.checkpoints import best_of, weights_of
from bipolar.lab.training.exported import export_if_missing
from bipolar.lab.training.loop import train
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.runs import load_config, prepared, stored
from bipolar.lab.training.text.config import TextConfig
from bipolar.lab.training.text.task import TextTask, text_task
from bipolar.models import CharRNN


def train_text(config: TextConfig, *, show: bool = True) -> dict[str, Any]:
    """Trains by a configuration, from the beginning or from the last checkpoint; returns ``result.json``."""
    config = prepared(config)
    task = _task_of_run(config)
    corpus = task.corpus
    return train(config, task, show=show, vocabulary=corpus.vocabulary, text=corpus.digest())


def evaluate_text(run: str | Path, split: str, data_dir: Path | None = None) -> dict[str, float]:
    """The metrics of a run's best model on a split."""
    if split not in SPLITS:
        raise UsageError(f"--split {split}: expected one of {', '.join(SPLITS)}")
    run = Path(run)
    task = _task_of_run(load_config(TextConfig, run, data_dir))
    with torch.random.fork_rng(devices=[]):
        task.setup(Machine(accelerator="auto").fabric())
    task.model.load_state_dict(weights_of(best_of(run)))
    task.model.eval()
    export_if_missing(task, run)
    return {f"{split}_bpc": task.evaluate(split)}


def load_model(run: str | Path) -> CharRNN:
    """The best model of a run so far, or its last if it has not been validated yet, from its checkpoints."""
    run = Path(run)
    config = load_config(TextConfig, run)
    weights = weights_of(best_of(run))
    model = config.build(stored(run)["vocabulary"])
    model.load_state_dict(weights)
    return model.eval()


def _task_of_run(config: TextConfig) -> TextTask:
    """The task of a configuration; if its run has begun, the text has to be the same as then."""
    task, run = text_task(config), config.directory
    if (run / "config.json").exists():
        before = stored(run)
        if before.get("vocabulary") != task.corpus.vocabulary or before.get("text") != task.corpus.digest():
            raise UsageError(
                f"--data {config.data}: this is not the text that {run} began with; --data-dir DIRECTORY says in which "
                "directory that text is"
            )
    return task
