"""LSUV gives every layer unit variance."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import bipolar
from tests.helpers.signals import mlp, variances

BOUNDED = ("hardsigmoid", "hardtanh", "sigmoid", "softsign", "tanh")
ACTIVATIONS = [name for name in bipolar.list_activations() if name not in ("crelu", *BOUNDED)]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_after_every_activation(name: str) -> None:
    model, x = mlp(*(bipolar.get_activation(name) for _ in range(3))), torch.randn(64, 48)
    report = bipolar.lsuv_(model, x)
    found = variances(model, x)
    after = ("0", "2", "4") if name == "identity" else ("1", "3", "5")
    for layer in (*after, "6"):
        assert found[layer] == pytest.approx(1.0, abs=1e-3)
    assert [row.name for row in report] == ["0", "2", "4", "6"]
    assert all(row.after == pytest.approx(1.0, abs=1e-3) for row in report)


@pytest.mark.parametrize("name", ["relu", "brelu", "elu", "gelu"])
def test_of_the_output_itself(name: str) -> None:
    model, x = mlp(*(bipolar.get_activation(name) for _ in range(3))), torch.randn(64, 48)
    bipolar.lsuv_(model, x, at="output")
    found = variances(model, x)
    assert [found[layer] for layer in ("0", "2", "4", "6")] == pytest.approx([1.0] * 4, abs=1e-4)


@pytest.mark.parametrize("at", ["activation", "output"])
def test_of_the_second_moment(at: Any) -> None:
    model, x = mlp(nn.ReLU(), nn.ELU()), torch.randn(64, 48)
    bipolar.lsuv_(model, x, target="second_moment", at=at)
    for end in (2, 4) if at == "activation" else (1, 3):
        assert model[:end](x).square().mean().item() == pytest.approx(1.0, abs=1e-3)


def test_what_it_measures_is_what_bipolarity_changes() -> None:
    """Plain ReLU with unit variance has a second moment of 1.47, bipolar ReLU of 1 (for many units)."""
    x = torch.randn(512, 256)
    second = {}
    for activation in (nn.ReLU(), bipolar.BReLU()):
        model = nn.Sequential(nn.Linear(256, 256, bias=False), activation)
        bipolar.lsuv_(model, x)
        second[activation] = model(x).square().mean().item()
    assert list(second.values()) == pytest.approx([1.467, 1.0], abs=0.02)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 8), (16, 6)),
        (nn.Linear(6, 8), (4, 5, 6)),
        (nn.Conv1d(6, 8, 3), (4, 6, 12)),
        (nn.Conv2d(6, 8, 3, groups=2), (4, 6, 8, 8)),
        (nn.Conv2d(6, 6, 3, groups=6), (4, 6, 8, 8)),
        (nn.Conv2d(6, 8, 3), (6, 8, 8)),  # without a batch dimension
        (nn.Conv3d(6, 8, 3), (2, 6, 5, 5, 5)),
        (nn.ConvTranspose1d(6, 8, 3), (4, 6, 12)),
        (nn.ConvTranspose2d(6, 8, 3, stride=2), (4, 6, 5, 5)),
        (nn.ConvTranspose3d(6, 8, 3), (2, 6, 4, 4, 4)),
    ],
)
@pytest.mark.parametrize("orthogonal", [True, False])
def test_of_every_kind_of_layer_with_its_bias_in_place(
    layer: nn.Module, shape: tuple[int, ...], orthogonal: bool
) -> None:
    layer = copy.deepcopy(layer)
    bias = nn.init.normal_(layer.bias, std=0.5).detach().clone()
    weight = layer.weight.detach().clone()
    x = torch.randn(shape) + 0.3
    report = bipolar.lsuv_(layer, x, orthogonal=orthogonal)
    assert layer(x).var(correction=0).item() == pytest.approx(1.0, abs=1e-3)
    assert torch.equal(layer.bias, bias)
    if not orthogonal:
        torch.testing.assert_close(layer.weight, report.rows[0].scale * weight)


def test_channels_last_and_other_dtypes() -> None:
    x = torch.randn(8, 3, 16, 16)
    for dtype, tolerance in ((torch.float64, 1e-4), (torch.float32, 1e-3), (torch.bfloat16, 2e-2)):
        model = nn.Sequential(nn.Conv2d(3, 16, 3), bipolar.BReLU(), nn.Conv2d(16, 16, 3), nn.ReLU()).to(dtype)
        model[2].weight.data = model[2].weight.data.contiguous(memory_format=torch.channels_last)
        batch = x.to(dtype).contiguous(memory_format=torch.channels_last)
        bipolar.lsuv_(model, batch)
        assert model[2].weight.is_contiguous(memory_format=torch.channels_last)
        assert model[2].weight.dtype == dtype
        for end in (2, 4):
            assert model[:end](batch).double().var().item() == pytest.approx(1.0, abs=tolerance)


def test_orthogonal_weights() -> None:
    model = nn.Sequential(nn.Linear(20, 20, bias=False))
    bipolar.lsuv_(model, torch.randn(64, 20), orthogonal=True)
    gram = model[0].weight @ model[0].weight.T
    torch.testing.assert_close(gram / gram[0, 0], torch.eye(20), atol=1e-5, rtol=0)
