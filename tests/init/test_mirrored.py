"""The mirrored initialisation after CReLU."""

import pytest
import torch
from torch import nn

import bipolar


@pytest.mark.parametrize("init_", [None, nn.init.orthogonal_, nn.init.kaiming_normal_])
def test_a_convolution_after_crelu_starts_out_linear(init_: object) -> None:
    convolution = nn.Conv2d(6, 4, 3, dtype=torch.float64)
    before = convolution.weight.detach().clone()
    assert bipolar.mirrored_(convolution.weight, init_) is convolution.weight
    assert torch.equal(convolution.weight[:, :3], -convolution.weight[:, 3:])
    assert torch.equal(before[:, :3], convolution.weight[:, :3]) == (init_ is None)
    network = nn.Sequential(bipolar.CReLU(), convolution)
    x, y = torch.randn(2, 5, 3, 8, 8, dtype=torch.float64)
    bias = network(torch.zeros_like(x))
    torch.testing.assert_close(network(2 * x - y) - bias, 2 * (network(x) - bias) - (network(y) - bias))


def test_a_transposed_convolution_has_its_input_in_dimension_0() -> None:
    layer = nn.ConvTranspose1d(4, 3, 3, bias=False)
    bipolar.mirrored_(layer.weight, dim=0)
    x = torch.randn(2, 2, 7)
    torch.testing.assert_close(layer(bipolar.CReLU()(-x)), -layer(bipolar.CReLU()(x)))


def test_gradients_stay_as_they_were() -> None:
    weight = nn.Parameter(torch.randn(3, 4))
    bipolar.mirrored_(weight)
    assert weight.requires_grad
    assert weight.grad_fn is None


def test_bad_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="tensor: expected an even size in dimension 1"):
        bipolar.mirrored_(torch.ones(2, 3))
    with pytest.raises(IndexError, match="dim: expected a value from -1 to 0"):
        bipolar.mirrored_(torch.ones(4))
