"""State dicts, ``save_pretrained`` directories and runs that an earlier version wrote still load and mean the same."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import bipolar
from bipolar.lab.training.text import evaluate_text
from tests.compatibility.make import losses, models, networks, output_of

HERE = Path(__file__).parent


def assert_computes_as_before(model: nn.Module, name: str) -> None:
    example = load_file(HERE / f"{name}.example.safetensors")
    torch.testing.assert_close(output_of(model, example["input"]), example["output"])


@pytest.mark.parametrize("name", ["activations", "converted", "stacked_rnn"])
def test_a_state_dict(name: str) -> None:
    network, _ = networks()[name]
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    network.load_state_dict(load_file(HERE / f"{name}.safetensors"))
    assert_computes_as_before(network, name)


@pytest.mark.parametrize("name", ["char_rnn", "oriented", "wide_resnet"])
def test_a_directory_of_save_pretrained(name: str) -> None:
    kind = type(models()[name][0])
    assert_computes_as_before(kind.from_pretrained(HERE / name), name)


def test_a_run(tmp_path: Path) -> None:
    run = shutil.copytree(HERE / "run", tmp_path / "run")
    (tmp_path / "fox.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    result = json.loads((run / "result.json").read_text())
    assert evaluate_text(run, "test", tmp_path)["test_bpc"] == pytest.approx(result["test_bpc"], rel=1e-5)
    assert bipolar.load(run).generate("the ", 9)  # evaluation has written the model as this version does
    assert (
        bipolar.models.CharRNN(28, 8, 4).state_dict().keys()
        == torch.load(run / "checkpoints/best.pt", weights_only=True)["model"].keys()
    )


def test_the_paper_recipe_trains_as_it_did(tmp_path: Path) -> None:
    """To rounding, which depends on the processor."""
    expected = json.loads((HERE / "paper_recipe.json").read_text())["train_bpc"]
    assert losses(tmp_path) == pytest.approx(expected, rel=1e-6)
