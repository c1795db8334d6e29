"""Activations by name."""

from typing import Any

import pytest
import torch
from torch import nn

import bipolar
from bipolar._activations import registry


@pytest.fixture
def scratch_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


@pytest.mark.parametrize("name", bipolar.list_activations())
def test_every_name_makes_a_module_that_runs(name: str) -> None:
    module = bipolar.get_activation(name)
    kind = f"b{type(module.f).__name__}" if isinstance(module, bipolar.Bipolar) else type(module).__name__
    assert kind.lower() == name.replace("_", "")
    assert module(torch.randn(2, 4)).shape[0] == 2


def test_all_functions_of_the_library_have_a_name() -> None:
    functions = set(bipolar.functional.__all__) - {"bipolar"}
    assert functions <= set(bipolar.list_activations())
    assert {"relu", "elu", "tanh", "selu"} <= set(bipolar.list_activations())


def test_arguments_reach_the_module_and_case_does_not_matter() -> None:
    assert repr(bipolar.get_activation("BELU", alpha=0.5, dim=-1)) == "BELU(alpha=0.5, dim=-1)"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("belou", "did you mean 'belu'"),
        ("brel", "'brelu'"),
        ("leakyrelu", "'leaky_relu'"),
        ("qqqqqq", "known are bcelu, belu, "),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=rf"name: no activation is called '{name}'; .*{hint}"):
        bipolar.get_activation(name)


def test_a_name_has_to_be_a_string() -> None:
    with pytest.raises(TypeError, match="name: expected a string"):
        bipolar.get_activation(nn.ReLU)


@pytest.mark.usefixtures("scratch_registry")
def test_registering() -> None:
    bipolar.register_activation("Mine", nn.Hardtanh)
    assert "mine" in bipolar.list_activations()
    assert isinstance(bipolar.get_activation("mine", max_val=2.0), nn.Hardtanh)
    with pytest.raises(ValueError, match="name: 'mine' is taken"):
        bipolar.register_activation("mine", nn.ReLU)
    bipolar.register_activation("mine", nn.ReLU, overwrite=True)
    assert isinstance(bipolar.get_activation("mine"), nn.ReLU)
    not_a_module: Any = int
    bipolar.register_activation("number", not_a_module)
    with pytest.raises(TypeError, match="name: the factory registered as 'number' made 0, not a module"):
        bipolar.get_activation("number")
    with pytest.raises(TypeError, match="factory: expected"):
        bipolar.register_activation("other", 3)
    with pytest.raises(TypeError, match="name: expected a string that is not empty"):
        bipolar.register_activation("", nn.ReLU)
