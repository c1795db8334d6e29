"""The mirrored initialisation of a layer that follows CReLU."""

from collections.abc import Callable

import torch
from torch import Tensor


def mirrored_(tensor: Tensor, init_: Callable[[Tensor], object] | None = None, *, dim: int = 1) -> Tensor:
    r"""Mirrors a weight for :class:`~bipolar.CReLU`, so that CReLU and the layer after it start out linear.

    The layer after a CReLU sees :math:`(f(x), f(-x))` and has twice the weights: :math:`[W_1, -W_2]`. Setting
    :math:`W_2 = W_1`, as Balduzzi et al. propose in `The Shattered Gradients Problem
    <https://arxiv.org/abs/1702.08591>`_, gives

    .. math::
        W_1 f(x) - W_1 f(-x) = W_1 x

    for ReLU: a linear network, until training moves the two halves apart.

    Args:
        tensor: the weight, changed in place; its first half along ``dim`` is copied, negated, over the second
        init_: initialises the first half beforehand, such as :func:`torch.nn.init.orthogonal_`. Default: the first
            half stays as it is
        dim: the dimension of the weight that runs over the layer's input: 1 for linear and convolution layers, 0 for
            transposed convolutions; not for grouped convolutions, whose groups see only a part of it. Default: 1

    Examples::

        >>> import torch, bipolar
        >>> layer = torch.nn.Linear(6, 4)
        >>> _ = bipolar.mirrored_(layer.weight, torch.nn.init.orthogonal_)
        >>> x = torch.randn(2, 3)
        >>> linear = torch.nn.functional.linear(x, layer.weight[:, :3], layer.bias)
        >>> torch.allclose(layer(bipolar.CReLU()(x)), linear, atol=1e-6)
        True
    """
    if not -tensor.ndim <= dim < tensor.ndim:
        raise IndexError(
            f"dim: expected a value from {-tensor.ndim} to {tensor.ndim - 1} for a weight of shape "
            f"{tuple(tensor.shape)}, got {dim}"
        )
    if tensor.size(dim) % 2:
        raise ValueError(
            f"tensor: expected an even size in dimension {dim}, because CReLU doubles the channels, "
            f"got shape {tuple(tensor.shape)}"
        )
    with torch.no_grad():
        half = tensor.size(dim) // 2
        first = tensor.narrow(dim, 0, half).contiguous().clone()  # as some initialisers need it
        if init_ is not None:
            init_(first)
        tensor.copy_(torch.cat((first, -first), dim))
    return tensor
