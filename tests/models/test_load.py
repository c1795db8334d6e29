"""Trained models from their directories."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import bipolar
from bipolar.models import CharRNN, OrientedResponseNet, WideResNet
from tests.compatibility.make import models

EARLIER = Path(__file__).parents[1] / "compatibility"


@pytest.mark.parametrize("name", ["char_rnn", "oriented", "wide_resnet"])
def test_a_directory_of_save_pretrained(name: str) -> None:
    model = bipolar.load(str(EARLIER / name))
    assert type(model) is type(models()[name][0])
    assert not model.training
    same = type(model).from_pretrained(EARLIER / name).state_dict()
    assert all(torch.equal(value, same[key]) for key, value in model.state_dict().items())


def test_the_class_is_the_one_that_was_asked_for() -> None:
    assert isinstance(bipolar.load(EARLIER / "char_rnn", CharRNN), CharRNN)
    with pytest.raises(ValueError, match="has a WideResNet, not a OrientedResponseNet"):
        bipolar.load(EARLIER / "wide_resnet", OrientedResponseNet)


def test_the_model_of_a_run_goes_before_the_configuration_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"task": "images", "config": {}}')
    WideResNet(10, 1, num_classes=3).save_files(tmp_path / "model")
    assert bipolar.load(tmp_path, WideResNet).head.out_features == 3


def test_no_model(tmp_path: Path) -> None:
    number: Any = 3
    with pytest.raises(TypeError, match="directory: expected a path, got 3"):
        bipolar.load(number)
    with pytest.raises(FileNotFoundError, match="which is not there"):
        bipolar.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="has no model: neither config"):
        bipolar.load(EARLIER / "run")
    (tmp_path / "model.safetensors").touch()
    for content in ("[1]", "{}", "no JSON", json.dumps({"colour": "red"})):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ValueError, match="does not describe a model"):
            bipolar.load(tmp_path)
