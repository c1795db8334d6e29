"""Several processes that train one model: they compute what one does, stop as one, and go on."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from bipolar.lab.cli import main
from bipolar.lab.training.checkpoints import Checkpoints
from tests.helpers.paths import ROOT
from tests.helpers.processes import has_metrics, running, wait_until
from tests.helpers.text_runs import metrics

#: without dropout: each process has its own; in double precision, because rounding grows with the steps
TEXT = (
    "train text --model.num-layers 4 --model.hidden-size 16 --model.dropout 0 --batch-size 4 --window 10 --lr 5e-3 "
    "--checkpoint-every 7 --validate-every 1 --accelerator cpu --precision 64-true"
)
#: levels with a term of the loss that they leave behind
RIVAL = (
    "train text --model.cell hm_lstm --model.num-layers 2 --model.hidden-size 8 --model.layer-norm "
    "--model.norm-stabiliser 0.5 --batch-size 4 --window 10 --lr 5e-3 --accelerator cpu --precision 64-true"
)
#: oriented, for its buffers; an odd number of test batches
IMAGES = (
    "train images --model.network orn --model.orientations 4 --model.depth 10 --model.widen-factor 1 --model.dropout 0 "
    "--data digits --batch-size 32 --lr 0.01 --train-images 640 --test-images 100 --max-epochs 2 --log-every 1 "
    "--checkpoint-every 100 --accelerator cpu --recipe fast --optimizer sgd --no-pin --average 0.5"
)


@pytest.mark.long
def test_two_processes_are_one_stop_as_one_and_go_on(corpus: Path, tmp_path: Path) -> None:
    """The same global batch as one process; two get SIGTERM in between, and are resumed.

    They do everything that there is to do: most of the time of two processes is their start.
    """
    commands = {
        "step": [*TEXT.split(), "--data", str(corpus), "--max-steps", "1"],
        "rival": [*RIVAL.split(), "--data", str(corpus), "--max-steps", "1"],
        "text": [*TEXT.split(), "--data", str(corpus), "--max-steps", "300"],
        "images": IMAGES.split(),
    }
    for name, command in commands.items():
        main([*command, "--out", str(tmp_path / name)])
    two = {name: tmp_path / f"{name}-of-two" for name in commands}

    parts = [[*command, "--out", str(two[name]), "--devices", "2"] for name, command in commands.items()]
    with running(one_after_another(parts), output=subprocess.PIPE, cwd=ROOT) as process:
        for name in ("text", "images"):
            wait_until(partial(has_metrics, two[name]), process=process)
            process.terminate()  # only one of the two
        said, error = process.communicate(timeout=240)
        assert process.returncode == 0, error.decode()
    for name in ("text", "images"):
        assert f"--resume {two[name]} goes on from here\n" in said.decode()
        assert not (two[name] / "result.json").exists()
    parts = [["train", name, "--resume", str(two[name])] for name in ("text", "images")]
    subprocess.run(one_after_another(parts), check=True, capture_output=True, timeout=240, cwd=ROOT)

    for name in ("step", "rival"):
        the_gradients_are_those_of_one(tmp_path / name, two[name])
    the_metrics_of_text_are_those_of_one(tmp_path / "text", two["text"])
    the_metrics_of_images_are_those_of_one(tmp_path / "images", two["images"])


def one_after_another(commands: list[list[str]]) -> list[str]:
    words = [word for command in commands for word in ("then", *command)]
    return [sys.executable, "-m", "tests.helpers.several_commands", *words]


def the_gradients_are_those_of_one(one: Path, two: Path) -> None:
    """Adam's first moment after one step is a tenth of the gradient."""
    moments = []
    for run in (one, two):
        state = Checkpoints(run / "checkpoints").last()
        assert state is not None
        assert state["loop"]["step"] == 1
        moments.append([entry["exp_avg"] for entry in state["optimizer"]["state"].values()])
    for ours, theirs in zip(*moments, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6 * float(ours.abs().max()))


def the_metrics_of_text_are_those_of_one(one: Path, two: Path) -> None:
    alone, together = metrics(one), metrics(two)
    assert len(alone) == len(together) > 30
    for a, b in zip(alone, together, strict=True):
        assert a.keys() == b.keys()
        for name, value in a.items():
            assert b[name] == pytest.approx(value, rel=1e-6, abs=1e-6)


def the_metrics_of_images_are_those_of_one(one: Path, two: Path) -> None:
    """The images are shifted alike, however many processes share them."""
    alone, together = metrics(one), metrics(two)
    assert len(alone) == len(together) == 43
    for a, b in zip(alone, together, strict=True):
        for name, value in a.items():
            assert b[name] == pytest.approx(value, rel=1e-3, abs=1e-3)
