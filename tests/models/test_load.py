"""Trained models from their directories."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import bipolar
from bipolar.models import CharRNN, OrientedResponseNet, WideResNet
from tests.compatibility.make import models
from tests.helpers.harm import Harmful

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


class TestFilesOfOthers:
    """A directory that somebody else has made: nothing of it is executed, and nothing is built that cannot be right."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        CharRNN("abc ", hidden_size=4, num_layers=2).save_files(tmp_path / "model")
        return tmp_path / "model"

    @pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
    def test_a_pickle_in_place_of_weights(self, directory: Path, save: Callable[..., object]) -> None:
        save(Harmful(directory / "executed"), directory / "model.safetensors")
        with pytest.raises(ValueError, match=r"directory: .*model.safetensors is not a file of weights"):
            bipolar.load(directory)
        assert not (directory / "executed").exists()

    def test_weights_that_are_cut_off(self, directory: Path) -> None:
        path = directory / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-8])
        with pytest.raises(ValueError, match="is not a file of weights"):
            bipolar.load(directory)

    def test_weights_of_another_model(self, directory: Path) -> None:
        save_file({"rnn.bias_l0": torch.ones(400)}, directory / "model.safetensors")
        with pytest.raises(ValueError, match=r"model.safetensors has not the weights of .*config.json"):
            bipolar.load(directory)

    @pytest.mark.parametrize("name", ["hidden_size", "num_layers"])
    def test_sizes_that_no_machine_has(self, directory: Path, name: str) -> None:
        config = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(config | {name: 10**12}))
        with pytest.raises(ValueError, match=rf"{name}: 1000000000000, but there are only \d+ weights"):
            bipolar.load(directory)

    @pytest.mark.parametrize("value", [1.5, "a", None, [], {}])
    def test_settings_of_a_wrong_type(self, directory: Path, value: Any) -> None:
        config = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(config | {"hidden_size": value}))
        with pytest.raises(ValueError, match=r"config.json does not describe a model"):
            bipolar.load(directory)

    def test_json_that_is_nested_too_deeply(self, directory: Path) -> None:
        (directory / "config.json").write_text("[" * 100_000)
        with pytest.raises(ValueError, match=r"does not describe a model .nested too deeply"):
            bipolar.load(directory)
