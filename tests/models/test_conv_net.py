"""The plain convolutional network: sizes, its formula, norms, signs, files."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bipolar
from bipolar.models import ConvNet


@pytest.mark.parametrize("norm", [None, "batch"])
@pytest.mark.parametrize("skip", [False, True])
def test_against_its_formula(norm: Any, skip: bool) -> None:
    model: Any = ConvNet(1, activation="elu", norm=norm, skip=skip).double().eval()
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    y = F.elu(F.conv2d(x, model.stem.weight, model.stem.bias))
    assert y.shape == (3, 24, 31, 31)
    for i, ((conv1, _, norm1, _), (conv2, norm2, _)) in enumerate(zip(model.downs, model.sames, strict=True)):
        h = F.elu(norm1(F.max_pool2d(F.conv2d(y, conv1.weight, conv1.bias, padding=1), 2, ceil_mode=i == 2)))
        y = F.elu(norm2(F.conv2d(h, conv2.weight, conv2.bias, padding=1))) + (h if skip else 0)
    assert y.shape == (3, 64, 4, 4)
    torch.testing.assert_close(model(x), model.head(y.flatten(2).max(2).values))


@pytest.mark.parametrize("norm", [None, "batch"])
def test_sizes(norm: Any) -> None:
    with torch.device("meta"):
        model = ConvNet(4, norm=norm)
    assert sorted(m.out_channels for m in model.modules() if isinstance(m, nn.Conv2d)) == [24, 64, 64, *[256] * 4]
    assert all(
        (m.bias is None) == (norm is not None)
        for m in (*model.downs.modules(), *model.sames.modules())
        if isinstance(m, nn.Conv2d)
    )
    assert sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()) == (0 if norm is None else 6)


@pytest.mark.parametrize("side", [5, 8, 9, 33])
def test_sides(side: int) -> None:
    assert ConvNet(1)(torch.randn(2, 3, side, side)).shape == (2, 10)


def test_lsuv_brings_unit_second_moments() -> None:
    torch.manual_seed(0)
    model, x = ConvNet(1), torch.randn(64, 3, 32, 32)
    report = bipolar.lsuv_(model, x, target="second_moment")
    assert len(report) == 8
    with torch.no_grad():
        y = model.activation(model.stem(x))
    assert float(y.square().mean()) == pytest.approx(1, abs=2e-3)


def test_max_pooling_keeps_it_from_being_a_plain_network() -> None:
    report = bipolar.symmetry(ConvNet(1, activation="belu"), torch.randn(2, 3, 32, 32))
    assert "max" in str(report)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"widen_factor": 0}, "widen_factor: expected at least 1, got 0"),
        ({"norm": "layer"}, "norm: expected None or 'batch', got 'layer'"),
        ({"activation": "rleu"}, "activation: "),
        ({"num_classes": 0}, "num_classes: expected at least 1, got 0"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConvNet(**arguments)


def test_files(tmp_path: Path) -> None:
    model = ConvNet(1, num_classes=3, activation="belu", skip=True).eval()
    model.save_pretrained(tmp_path)
    again = bipolar.load(tmp_path, ConvNet)
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(model(x), again(x))
