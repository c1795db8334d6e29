"""Output channels of linear and convolution layers: in the output, in the weight and in the bias."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

#: Functions that hand on an output in parts, as attention does that computes q, k and v by one layer.
_SPLITS = frozenset(("split", "split_with_sizes", "chunk", "tensor_split", "unbind"))
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def is_transposed_linear(module: nn.Module) -> bool:
    """Whether a module is the linear layer of GPT-2 in ``transformers``, ``Conv1D``, whose weight is (in, out)."""
    return any(
        base.__name__ == "Conv1D" and base.__module__.split(".")[0] == "transformers" for base in type(module).__mro__
    )


def channel_dim(layer: nn.Module) -> int:
    """The dimension of the output that counts channels, from the end."""
    if isinstance(layer, nn.Linear) or is_transposed_linear(layer):
        return -1
    return -1 - len(cast(nn.Conv2d, layer).kernel_size)


def as_output(layer: nn.Module, values: Tensor) -> Tensor:
    """One value for each channel, in a shape that broadcasts to the output."""
    return values.view(-1, *[1] * (-1 - channel_dim(layer)))


def as_weight(layer: nn.Module, values: Tensor, weight: Tensor) -> Tensor:
    """One value for each channel, in a shape that broadcasts to the weight."""
    if isinstance(layer, _TRANSPOSED):  # (in, out / groups, *kernel): every group of inputs has outputs of its own
        grouped = values.view(layer.groups, -1).repeat_interleave(layer.in_channels // layer.groups, dim=0)
        return grouped.view(*grouped.shape, *[1] * (weight.ndim - 2))
    return values if is_transposed_linear(layer) else values.view(-1, *[1] * (weight.ndim - 1))


def has_own_channels(layer: nn.Module, weight: Tensor, output: Tensor) -> bool:
    """Whether each channel of the output has weights of its own; not so in a layer that rotates its filters."""
    if isinstance(layer, _TRANSPOSED):
        channels = weight.size(1) * layer.groups
    else:
        channels = weight.size(-1 if is_transposed_linear(layer) else 0)
    return channels == output.size(channel_dim(layer))


def bias_of(layer: nn.Module) -> Tensor | None:
    """The bias in a shape that adds to the layer's output; None if it has none, or only zeros."""
    bias = layer.bias
    if not isinstance(bias, Tensor) or not bool(bias.any()):
        return None
    bias = bias.detach()
    if channel_dim(layer) < -1:
        # may serve several channels
        bias = bias.repeat_interleave(cast(nn.Conv2d, layer).out_channels // bias.numel())
    return as_output(layer, bias)


def parts_of(
    layer: nn.Module, output: Tensor, func: Any, split: Callable[[Tensor], Any], view: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """The channels of each part into which a function splits an output; empty if it does not split the channels.

    ``split`` is the call as a function of its input, and ``view`` leads from the output to that.
    """
    if getattr(func, "__name__", "") not in _SPLITS:
        return []
    dim = channel_dim(layer)
    channels = as_output(layer, torch.arange(output.size(dim), device=output.device)).expand(output.shape).contiguous()
    parts = [part.unique() for part in split(view(channels))]
    whole = torch.cat(parts).sort().values
    return parts if len(parts) > 1 and torch.equal(whole, torch.arange(output.size(dim), device=whole.device)) else []
