"""Active rotating filters: against a slow construction, equivariance, gradients."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bipolar.models import ORAlign, ORConv2d, ORPool

SHAPES = pytest.mark.parametrize(
    ("kernel_size", "in_orientations", "orientations"),
    [(3, 8, 8), (3, 4, 4), (3, 1, 8), (3, 1, 4), (1, 8, 8), (1, 1, 4)],
)


def slowly_rotated(layer: ORConv2d) -> Tensor:
    """Every filter in every rotation, cell by cell: each outer cell is turned as a point around the centre."""
    features, inputs, orientations, n = layer.out_features, layer.in_features, layer.in_orientations, layer.orientations
    k = layer.kernel_size[0]
    result = torch.full((features * n, inputs * orientations, k, k), math.nan, dtype=layer.weight.dtype)
    for f in range(features):
        for r in range(n):
            for g in range(inputs):
                for o in range(orientations):
                    for row in range(k):
                        for column in range(k):
                            y, x = 1 - row, column - 1  # upwards and to the right, from the centre of a 3x3 grid
                            if k == 1 or (x == 0 and y == 0):
                                to_row, to_column = row, column
                            else:
                                angle = math.atan2(y, x) + 2 * math.pi * r / n
                                reach = max(abs(math.cos(angle)), abs(math.sin(angle)))
                                to_column = 1 + round(math.cos(angle) / reach)
                                to_row = 1 - round(math.sin(angle) / reach)
                            to = (o + r) % orientations
                            value = layer.weight[f, g * orientations + o, row, column]
                            result[f * n + r, g * orientations + to, to_row, to_column] = value
    return result


def turned(x: Tensor, orientations: int) -> Tensor:
    """By 90 degrees counter-clockwise: the grid, and with it what an orientation means."""
    grid = torch.rot90(x, 1, (2, 3)).unflatten(1, (-1, orientations))
    return grid.roll(orientations // 4, 2).flatten(1, 2)


def whole_numbers(*shape: int) -> Tensor:
    return torch.randint(-4, 5, shape).double()


@SHAPES
def test_rotation_against_a_slow_construction(kernel_size: int, in_orientations: int, orientations: int) -> None:
    layer = ORConv2d(2, 3, kernel_size, in_orientations=in_orientations, orientations=orientations)
    assert torch.equal(layer.rotated(), slowly_rotated(layer))


@SHAPES
@pytest.mark.parametrize("stride", [1, 2])
def test_turning_the_input_turns_the_output(
    kernel_size: int, in_orientations: int, orientations: int, stride: int
) -> None:
    """Exact: sums of small whole numbers do not depend on their order."""
    layer = ORConv2d(
        2,
        3,
        kernel_size,
        in_orientations=in_orientations,
        orientations=orientations,
        stride=stride,
        padding=kernel_size // 2,
        dtype=torch.float64,
    )
    assert layer.bias is not None
    layer.weight.data, layer.bias.data = whole_numbers(*layer.weight.shape), whole_numbers(3)
    x = whole_numbers(2, 2 * in_orientations, 9, 9)
    turn = turned(x, orientations) if in_orientations > 1 else torch.rot90(x, 1, (2, 3))
    assert torch.equal(layer(turn), turned(layer(x), orientations))


@pytest.mark.parametrize("in_orientations", [1, 4])
def test_gradients(in_orientations: int) -> None:
    layer = ORConv2d(2, 2, 3, in_orientations=in_orientations, orientations=4, padding=1, dtype=torch.float64)
    x = torch.randn(2, 2 * in_orientations, 3, 3, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]

    def call(x: Tensor, *values: Tensor) -> Any:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(call, (x, *layer.parameters()))


def test_it_can_be_made_elsewhere_and_materialised() -> None:
    layer = ORConv2d(2, 3, 3, in_orientations=8, orientations=8, device="meta")
    assert layer.weight.is_meta
    layer.to_empty(device="cpu").reset_parameters()
    assert torch.equal(layer.rotated(), slowly_rotated(layer))
    twin = ORConv2d(2, 3, 3, in_orientations=8, orientations=8)
    twin.load_state_dict(layer.state_dict())
    x = torch.randn(1, 16, 5, 5)
    assert torch.equal(twin(x), layer(x))
    assert torch.equal(copy.deepcopy(twin)(x), layer(x))
    assert set(layer.state_dict()) == {"weight", "bias"}
    assert repr(layer) == (
        "ORConv2d(2, 3, kernel_size=3, in_orientations=8, orientations=8, stride=(1, 1), padding=(0, 0), bias=True)"
    )


def test_as_wide_as_a_relu_needs() -> None:
    torch.manual_seed(0)
    layer = ORConv2d(16, 16, 3, in_orientations=8, orientations=8, bias=False)
    assert layer.bias is None
    assert layer.weight.var().item() == pytest.approx(2 / (16 * 8 * 9), rel=0.05)  # 18,432 values: 5 standard errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel_size": 5}, "kernel_size: expected 1 or 3"),
        ({"orientations": 6}, "orientations: expected 4 or 8, got 6"),
        ({"in_orientations": 4}, "in_orientations: expected 1 for an image, else 8"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ORConv2d(2, 2, **{"kernel_size": 3, "in_orientations": 8, "orientations": 8} | arguments)


@pytest.mark.parametrize("n", [4, 8])
def test_align_and_pool(n: int) -> None:
    x = torch.randn(5, 3 * n, dtype=torch.float64)
    features = x.view(5, 3, n)
    expected = torch.stack([torch.stack([f.roll(-int(f.argmax())) for f in sample]) for sample in features]).flatten(1)
    assert torch.equal(ORAlign(n)(x), expected)
    assert torch.equal(ORPool(n)(x), features.max(2).values)
    # a turn of the image moves all features on by as much, which neither shows
    moved = features.roll(1, 2).flatten(1)
    assert torch.equal(ORAlign(n)(moved), ORAlign(n)(x))
    assert torch.equal(ORPool(n)(moved), ORPool(n)(x))
    for module in (ORAlign(n), ORPool(n)):
        assert torch.autograd.gradcheck(module, (x.requires_grad_(),))
        assert isinstance(module, nn.Module)
        assert f"orientations={n}" in repr(module)
