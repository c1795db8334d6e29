"""The whitening initialisation of a first convolution."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import bipolar


def images(count: int = 32) -> Tensor:
    """Smooth pictures, whose neighbouring pixels and colours go together."""
    noise = torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    smooth = nn.functional.avg_pool2d(noise, 3, 1, 1)
    return smooth + smooth.mean(1, keepdim=True) + 0.5


def test_the_output_has_unit_variance_and_no_correlation() -> None:
    x = images().double()
    layer = nn.Conv2d(3, 24, 2).double()
    assert bipolar.whitened_(layer, x, eps=0.0) is layer
    half = layer(x)[:, ::2].transpose(0, 1).flatten(1)
    torch.testing.assert_close(torch.cov(half, correction=0), torch.eye(12, dtype=torch.float64))


def test_each_filter_with_both_signs_the_largest_first() -> None:
    x = images()
    layer = nn.Conv2d(3, 24, 2)
    bipolar.whitened_(layer, x)
    torch.testing.assert_close(layer.weight[1::2], -layer.weight[::2])
    assert not layer.bias.any()
    lengths = layer.weight[::2].flatten(1).norm(dim=1)
    assert (lengths.diff() >= 0).all()  # a small eigenvalue needs a long filter


@pytest.mark.parametrize(("outputs", "untouched"), [(10, 0), (24, 0), (30, 6)])
def test_fewer_or_more_filters_than_a_patch_has(outputs: int, untouched: int) -> None:
    layer = nn.Conv2d(3, outputs, 2, bias=False)
    before = layer.weight.detach().clone()
    bipolar.whitened_(layer, images())
    same = (layer.weight == before).flatten(1).all(1)
    assert int(same.sum()) == untouched
    assert same[-untouched:].all() or not untouched


@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2}, {"padding": (0, 1), "stride": (2, 1)}])
def test_padding_and_stride_are_those_of_the_layer(options: dict[str, Any]) -> None:
    x = images().double()
    layer = nn.Conv2d(3, 24, 2, **options).double()
    bipolar.whitened_(layer, x, eps=0.0)
    torch.testing.assert_close(layer(x).var(dim=(0, 2, 3), correction=0), torch.ones(24, dtype=torch.float64))


def test_eps_bounds_the_gain() -> None:
    x = images()
    x[:, 2] = x[:, 1]  # patches of lower rank: eigenvalues of zero
    layer = nn.Conv2d(3, 24, 2)
    bipolar.whitened_(layer, x)
    lengths = layer.weight.detach().flatten(1).norm(dim=1)
    assert torch.isfinite(lengths).all()
    assert float(lengths.max() / lengths.min()) == pytest.approx(((1 + 5e-4) / 5e-4) ** 0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("layer", "shape", "options", "message"),
    [
        (nn.Linear(3, 3), (4, 3, 8, 8), {}, "layer: expected a Conv2d, got Linear"),
        (nn.Conv2d(4, 4, 2, groups=2), (4, 4, 8, 8), {}, "layer: expected one without groups"),
        (nn.Conv2d(3, 4, 2), (4, 1, 8, 8), {}, r"images: expected \(number, 3, height, width\), got shape"),
        (nn.Conv2d(3, 4, 2), (4, 3, 8, 8), {"eps": -1.0}, "eps: expected 0 or more"),
        (nn.Conv2d(3, 4, 2), (4, 3, 8, 8), {}, "images: they are all of one colour"),
        (nn.Conv2d(3, 4, 2), (4, 3, 1, 8), {}, "images: expected them as large as the kernel at least"),
        (nn.Conv2d(3, 4, 2, padding="same"), (4, 3, 8, 8), {}, "layer: expected its padding as numbers"),
        (weight_norm(nn.Conv2d(3, 4, 2)), (4, 3, 8, 8), {}, "layer: its weight is parametrised"),
    ],
)
def test_wrong_arguments_are_named(layer: Any, shape: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        bipolar.whitened_(layer, torch.zeros(shape), **options)


def test_images_that_cannot_be_whitened() -> None:
    grey = images()[:, :1].expand(-1, 3, -1, -1)
    with pytest.raises(ValueError, match=r"eps: expected more than 0\.0, because the images leave components"):
        bipolar.whitened_(nn.Conv2d(3, 24, 2), grey, eps=0.0)
    with pytest.raises(ValueError, match="images: there is NaN or infinity in them"):
        bipolar.whitened_(nn.Conv2d(3, 24, 2), torch.full((4, 3, 8, 8), torch.nan))
