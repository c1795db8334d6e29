"""Runs on text: training, evaluation, and the model of a run."""

import math
from pathlib import Path
from typing import Any

import torch

from bipolar.lab.cells.model import RivalRNN
from bipolar.lab.data.places import SPLITS
from bipolar.lab.errors import UsageError
from bipolar.lab.training.checkpoints import Checkpoints
from bipolar.lab.training.exported import export_if_missing
from bipolar.lab.training.loop import ended_run, train
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.processes import without_fabric
from bipolar.lab.training.runs import load_config, prepared, stored
from bipolar.lab.training.start import Start
from bipolar.lab.training.text.config import TextConfig
from bipolar.lab.training.text.dynamic import Dynamic, dynamic_bpc
from bipolar.lab.training.text.task import TextTask, text_task
from bipolar.lab.training.text.whole import WholeText, bpc_of
from bipolar.lab.training.trained import as_written, trained_weights
from bipolar.models import CharRNN
from bipolar.models._load import check_sizes

#: Batches of training text whose gradients set the scale of dynamic evaluation, at most.
STATISTICS = 100


def train_text(config: TextConfig, *, show: bool = True) -> dict[str, Any]:
    """Trains by a configuration, from the beginning or from the last checkpoint; returns ``result.json``."""
    resumed, config = config.resume is not None, prepared(config)
    begun = Checkpoints(config.directory / "checkpoints").any or ended_run(config) is not None
    if config.start is not None and begun and not resumed:
        _check_start_of_begun(config)
    start = None if config.start is None or begun else Start(Path(config.start), config.task)
    if start is not None:
        start.check(config.to_json()["model"])
    task = _task_of_run(config, start)
    corpus = task.corpus
    origin = {} if config.start is None else {"start": _origin(config, corpus.vocabulary, start)}
    return train(config, task, show=show, vocabulary=corpus.vocabulary, text=corpus.digest(), **origin)


def _check_start_of_begun(config: TextConfig) -> None:
    """A run that has begun needs its start no more, but goes on with the same one alone."""
    place, known = Path(str(config.start)).resolve(), _stored_origin(config)
    same = place == Path(known.get("directory", ""))
    if place.is_dir():
        same = Start(place, config.task).digest == known.get("weights")
    if not same:
        raise UsageError(
            f"--start {config.start}: the run in {config.directory} started from other weights; --resume "
            f"{config.directory} to go on with it, or choose another --out"
        )


def _stored_origin(config: TextConfig) -> dict[str, Any]:
    origin = stored(config.directory).get("start")
    if not isinstance(origin, dict):
        raise UsageError(f"{config.directory}: its config.json has lost the run that it started from")
    return origin


def _origin(config: TextConfig, vocabulary: str, start: Start | None) -> Any:
    """The run that another one starts from, which has to have the same symbols, or as a run that has begun knows it."""
    if start is None:
        return _stored_origin(config)
    before = start.values["vocabulary"]
    if before != vocabulary:
        raise UsageError(
            f"--start {config.start}: its text has {len(before)} symbols, {config.data} has {len(vocabulary)}, and "
            "they are not the same; start without it"
        )
    return start.origin


def evaluate_text(
    run: str | Path,
    split: str,
    data_dir: Path | None = None,
    *,
    batch_size: int | None = None,
    dynamic: Dynamic | None = None,
    max_characters: int | None = None,
    show: bool = False,
) -> dict[str, float]:
    """The metrics of a run's best model on a split.

    Args:
        run: the directory of the run
        split: the split
        data_dir: where the data are now. Default: where they were
        batch_size: read the whole split in so many streams, 1 as the field does. Default: as in training, in whole
            windows
        dynamic: the settings of dynamic evaluation, which is in one stream, instead
        max_characters: read only so many characters, from the split's beginning, in one stream or several or by dynamic
            evaluation; the name of the metric says so. Default: all
        show: whether to show progress
    """
    if split not in SPLITS:
        raise UsageError(f"--split {split}: expected one of {', '.join(SPLITS)}")
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"--batch-size {batch_size}: expected at least 1")
    if dynamic is not None and batch_size not in (None, 1):
        raise UsageError(f"--batch-size {batch_size}: dynamic evaluation is in one stream; leave it out")
    if max_characters is not None and batch_size is None and dynamic is None:
        raise UsageError(
            f"--max-characters {max_characters}: for a text read in streams; add --dynamic or --batch-size"
        )
    run = Path(run)
    config = load_config(TextConfig, run, data_dir)
    weights = trained_weights(run)
    task = _task_of_run(config)
    with torch.random.fork_rng(devices=[]), as_written(run):
        check_sizes(vars(config.model), weights)
        task.setup(Machine(accelerator="auto").fabric())
        task.model.load_state_dict(weights)
    task.model.eval()
    export_if_missing(task, run)
    model, text, name = without_fabric(task.model), task.corpus[split], f"{split}_bpc"
    if max_characters is not None:
        if not 2 <= max_characters <= len(text):
            raise UsageError(f"--max-characters {max_characters}: expected 2 to {len(text)}, the length of {split}")
        text, name = text[:max_characters], f"{name}_of_first_{max_characters}"
    if dynamic is not None:
        windows = [task.streams["train"].at(index) for index in range(min(STATISTICS, task.steps_per_epoch))]
        uniform = task.uniform * math.log(2)
        bpc = dynamic_bpc(model, WholeText(text), windows, dynamic, uniform=uniform, show=show)
        return {f"dynamic_{name}": bpc}
    if batch_size is not None:
        return {name: bpc_of(model, WholeText(text, batch_size, f"{config.data}, {split}"), show=show)}
    return {name: task.evaluate(split, show=show)}


def load_model(run: str | Path) -> CharRNN | RivalRNN:
    """The best model of a run so far, or its last if it has not been validated yet."""
    run = Path(run)
    config = load_config(TextConfig, run)
    weights = trained_weights(run)
    with as_written(run):
        check_sizes(vars(config.model), weights)
        model = config.build(stored(run)["vocabulary"])
        model.load_state_dict(weights)
    return model.eval()


def _task_of_run(config: TextConfig, start: Start | None = None) -> TextTask:
    """The task of a configuration; if its run has begun, the text has to be the same as then."""
    task, run = text_task(config, start), config.directory
    if (run / "config.json").exists():
        before = stored(run)
        if before.get("vocabulary") != task.corpus.vocabulary or before.get("text") != task.corpus.digest():
            raise UsageError(
                f"--data {config.data}: this is not the text that {run} began with; --data-dir DIRECTORY says in which "
                "directory that text is"
            )
    return task
