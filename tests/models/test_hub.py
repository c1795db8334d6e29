"""Files of models that were converted or folded."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bipolar
from bipolar.models import OrientedResponseNet, WideResNet


def test_a_model_file_tells_the_new_activation(tmp_path: Any) -> None:
    model = bipolar.convert(bipolar.models.WideResNet(10, 1, activation="elu"))
    model.save_pretrained(tmp_path)
    assert isinstance(bipolar.models.WideResNet.from_pretrained(tmp_path).activation, bipolar.BELU)


def test_a_folded_model_is_saved_and_loaded_as_what_it_is(tmp_path: Any) -> None:
    x = torch.randn(2, 3, 8, 8)
    plain = bipolar.fold(WideResNet(10, 1, dropout=0.0))
    plain.save_pretrained(tmp_path)
    loaded = WideResNet.from_pretrained(tmp_path)
    assert isinstance(loaded.activation, nn.ReLU)
    assert torch.equal(loaded(x), plain(x))
    partly = bipolar.fold(OrientedResponseNet(10, 1, orientations=4), x)
    with pytest.raises(ValueError, match="its modules are not those that its configuration makes"):
        partly.save_pretrained(tmp_path)


def test_the_configuration_changes_in_its_activation_alone(tmp_path: Path) -> None:
    WideResNet(10, 1, activation="belu").save_pretrained(tmp_path)
    before = json.loads((tmp_path / "config.json").read_text())
    model = bipolar.fold(WideResNet.from_pretrained(tmp_path))
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == before | {"activation": "elu"}


def test_an_activation_without_a_name_is_refused(tmp_path: Path) -> None:
    model = bipolar.convert(WideResNet(10, 1, activation="relu"), activations={nn.ReLU: lambda **_: nn.LeakyReLU(0.3)})
    with pytest.raises(ValueError, match="its modules are not those that its configuration makes"):
        model.save_pretrained(tmp_path)
