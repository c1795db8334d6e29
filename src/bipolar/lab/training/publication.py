"""A run as a directory for others: configuration, metrics, result, weights and a card, without checkpoints."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bipolar._tools.files import read_json, replacing, write_json
from bipolar.lab.errors import UsageError
from bipolar.lab.training.card import card_of
from bipolar.lab.training.exported import failing_as_others
from bipolar.lab.training.images import evaluate_images, found_in
from bipolar.lab.training.runs import stored
from bipolar.lab.training.text import Dynamic, evaluate_text
from bipolar.models._hub import CONFIG, WEIGHTS
from bipolar.models._load import OF_RUN

#: The types of half precision.
HALVES = (torch.float16, torch.bfloat16)


def publish(
    run: Path,
    directory: Path,
    *,
    half: bool = False,
    one_stream: bool = False,
    dynamic: Dynamic | None = None,
    data_dir: Path | None = None,
) -> Path:
    """Writes what a run has found into a directory that ``bipolar eval``, ``bipolar sample`` and ``bipolar.load`` read.

    Everything in it comes from the run; the written weights are evaluated, and their metrics are in ``result.json``
    under ``exported``. A directory that this has written counts as a run, too.

    Args:
        run: the directory of the run
        directory: the directory to write
        half: write the weights in half precision, in whichever type loses less
        one_stream: evaluate on each part of a text in one stream, too, as the field does
        dynamic: evaluate on each part by dynamic evaluation with these settings, too
        data_dir: where the data are. Default: where they were
    """
    run = found_in(run)
    values, result = stored(run), _result_of(run)
    if not (run / OF_RUN / WEIGHTS).exists():
        raise UsageError(f"{run}: there is no model yet; bipolar eval {run} writes it for a run that lacks it")
    for flag, given in (("one-stream", one_stream), ("dynamic", dynamic is not None)):
        if given and values["task"] != "text":
            raise UsageError(f"--{flag}: {run} is not of text; leave it out")
    public = _without_places(values)
    if directory.resolve() == run.resolve():
        raise UsageError(f"{directory}: this is the run itself; choose another directory")
    if (directory / "config.json").exists():
        if stored(directory) != public:
            raise UsageError(f"{directory}: there is another run here; choose another directory")
    elif directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory}: there are other files here; choose an empty or a new directory")

    place = data_dir or (Path(values["data_dir"]) if "data_dir" in values else None)
    write_json(directory / "config.json", public)
    shutil.copyfile(run / "metrics.jsonl", directory / "metrics.jsonl")
    (directory / OF_RUN).mkdir(exist_ok=True)
    shutil.copyfile(run / OF_RUN / CONFIG, directory / OF_RUN / CONFIG)
    kind = _write_weights(run / OF_RUN / WEIGHTS, directory / OF_RUN / WEIGHTS, half)
    write_json(directory / "result.json", result)
    result["exported"] = {"weights": kind, **_evaluated(directory, values["task"], place)}
    if one_stream:
        result["exported"]["one_stream"] = _on_parts(directory, place, batch_size=1)
    if dynamic is not None:
        metrics = _on_parts(directory, place, dynamic=dynamic)
        result["exported"]["dynamic"] = {"settings": asdict(dynamic), **metrics}
    write_json(directory / "result.json", result)
    with replacing(directory / "README.md") as part:
        part.write_text(card_of(directory), encoding="utf-8")
    return directory


def _result_of(run: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = read_json(run / "result.json")
    except (OSError, ValueError):
        raise UsageError(f"{run}: the run has not ended yet") from None
    if not isinstance(result, dict) or result.get("status") != "finished":
        raise UsageError(f"{run}: the run did not converge")
    return result


def _without_places(values: dict[str, Any]) -> dict[str, Any]:
    """A ``config.json`` without the directories of the machine that the run was on, nor of those it started from."""
    config = values["config"] | {"data": Path(values["config"]["data"]).name}
    before = {"start": _without_places(values["start"])} if "start" in values else {}
    kept = {name: value for name, value in values.items() if name not in ("data_dir", "directory")}
    return kept | before | {"config": config}


def _write_weights(source: Path, target: Path, half: bool) -> str:
    """Writes weights, in half precision on request; returns the name of their type."""
    from safetensors.torch import load_file, save_file

    weights: dict[str, Tensor] = load_file(source)
    kind = next(value.dtype for value in weights.values() if value.is_floating_point())
    if half:
        kind = min(HALVES, key=lambda half: loss_of(weights, half))
        weights = {name: v.to(kind) if v.is_floating_point() else v for name, v in weights.items()}
    with replacing(target) as part, failing_as_others(target):
        save_file(weights, part, metadata={"format": "pt"})  # as the hub writes them
    return str(kind).removeprefix("torch.")


def loss_of(weights: dict[str, Tensor], kind: torch.dtype) -> float:
    """The sum of squares of what weights lose in another type."""
    floats = [value for value in weights.values() if value.is_floating_point()]
    return sum(float((value - value.to(kind).to(value.dtype)).square().sum()) for value in floats)


def _evaluated(directory: Path, task: str, data_dir: Path | None) -> dict[str, float]:
    if task == "images":
        return evaluate_images(directory, "test", data_dir)
    return _on_parts(directory, data_dir)


def _on_parts(directory: Path, data_dir: Path | None, **options: Any) -> dict[str, float]:
    """The metrics of a text model on the validation and the test part."""
    return {
        name: value
        for split in ("valid", "test")
        for name, value in evaluate_text(directory, split, data_dir, **options, show=True).items()
    }
