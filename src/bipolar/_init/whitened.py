"""The whitening initialisation of a first convolution."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold
from torch.nn.utils.parametrize import is_parametrized

#: A variance below this share of the largest is rounding.
LEAST = 1e-12


@torch.no_grad()
def whitened_(layer: nn.Conv2d, images: Tensor, *, eps: float = 5e-4) -> nn.Conv2d:
    r"""Sets the filters of a first convolution to the principal components of its patches, scaled to unit variance.

    With the eigenvalues :math:`\lambda_i` and eigenvectors :math:`v_i` of the covariance C of all patches, in the order
    of the eigenvalues, largest first, the filters are

    .. math::
        w_{2i} = \frac{v_i}{\sqrt{\lambda_i + \epsilon \lambda_1}}, \qquad w_{2i + 1} = -w_{2i}

    so that the network gets an input without the correlations of neighbouring pixels, and both signs of it, of which an
    activation may keep one alone. From Page, `How to train your ResNet
    <https://myrtle.ai/learn/how-to-train-your-resnet-8-bag-of-tricks/>`_, 2019. Filters beyond twice the size of a
    patch stay as they are. The bias becomes zero. Components with a variance far below :math:`\epsilon \lambda_1` stay
    small.

    Initialise the rest by :func:`~bipolar.lsuv_` afterwards, with the name of this layer in ``exclude``.

    Args:
        layer: the convolution, without groups and dilation, changed in place
        images: a batch of its inputs, some hundred of them
        eps: :math:`\epsilon`, relative to the largest eigenvalue, which bounds the gain of the smallest.
            Default: 5e-4

    Shape:
        - images: :math:`(N, C, H, W)`

    Examples::

        >>> layer = torch.nn.Conv2d(3, 24, 2)
        >>> images = torch.rand(64, 3, 32, 32)
        >>> output = bipolar.whitened_(layer, images)(images)
        >>> bool((output.var(dim=(0, 2, 3)) - 1).abs().max() < 0.01)
        True
    """
    _check(layer, images, eps)
    kernel: Any = layer.kernel_size
    padding: Any = 0 if layer.padding == "valid" else layer.padding
    patches = unfold(images.to(torch.float64), kernel, stride=layer.stride, padding=padding)
    patches = patches.transpose(1, 2).flatten(0, 1)
    patches = patches - patches.mean(0)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    if not values[0] > 0:
        raise ValueError("images: they are all of one colour, and have no variance to whiten")
    variances = values + eps * values[0]
    if variances[-1] < LEAST * values[0]:
        raise ValueError(f"eps: expected more than {eps}, because the images leave components without variance")
    filters = (vectors / variances.sqrt()).T
    filters = torch.stack([filters, -filters], dim=1).flatten(0, 1)[: layer.out_channels]
    layer.weight[: len(filters)] = filters.view(len(filters), *layer.weight.shape[1:]).to(layer.weight)
    if layer.bias is not None:
        layer.bias.zero_()
    return layer


def _check(layer: nn.Conv2d, images: Tensor, eps: float) -> None:
    if not isinstance(layer, nn.Conv2d):
        raise TypeError(f"layer: expected a Conv2d, got {type(layer).__name__}")
    if layer.groups != 1 or layer.dilation != (1, 1):
        raise ValueError(f"layer: expected one without groups and dilation, got {layer}")
    if layer.padding == "same":
        raise ValueError("layer: expected its padding as numbers, got 'same'")
    if is_parametrized(layer):
        raise ValueError("layer: its weight is parametrised; whiten it before")
    if images.ndim != 4 or images.size(1) != layer.in_channels:
        raise ValueError(
            f"images: expected (number, {layer.in_channels}, height, width), got shape {tuple(images.shape)}"
        )
    if not torch.isfinite(images).all():
        raise ValueError("images: there is NaN or infinity in them")
    if any(side < kernel for side, kernel in zip(images.shape[2:], layer.kernel_size, strict=True)):
        raise ValueError(f"images: expected them as large as the kernel at least, got shape {tuple(images.shape)}")
    if not eps >= 0:
        raise ValueError(f"eps: expected 0 or more, got {eps}")
