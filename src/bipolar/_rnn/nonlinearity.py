"""The activation of a stack: made from the argument ``nonlinearity``, and its signs."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bipolar._activations.channelwise import ChannelActivation
from bipolar._activations.patterns import Pattern, signs
from bipolar._activations.registry import get_activation
from bipolar._tools.restoring import evaluating


def make_activation(
    nonlinearity: str | Callable[[Tensor], Tensor],
    pattern: Pattern,
    units: int,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> Callable[[Tensor], Tensor]:
    """The activation f on (batch, hidden_size); a bipolar one given by name gets this pattern."""
    f: Callable[[Tensor], Tensor]
    if isinstance(nonlinearity, str):
        try:
            made = get_activation(nonlinearity)
        except ValueError as error:
            raise ValueError(f"nonlinearity: {str(error).removeprefix('name: ')}") from None
        if isinstance(made, ChannelActivation):
            made.dim, made.pattern = -1, pattern
        f = made.to(device=device, dtype=dtype)
    elif isinstance(nonlinearity, type) or not callable(nonlinearity):
        raise TypeError(f"nonlinearity: expected a name, a function or a module, got {nonlinearity!r}")
    else:
        f = nonlinearity
    if isinstance(f, ChannelActivation) and f.dim not in (1, -1):
        raise ValueError(f"nonlinearity: the units are in dimension -1, but this acts on dimension {f.dim}")
    parameter = next(f.parameters(), None) if isinstance(f, nn.Module) else None
    like = torch.zeros(1, units, device=device, dtype=dtype) if parameter is None else parameter.new_zeros(1, units)
    with torch.no_grad(), evaluating(f):
        output = f(like)
    if not isinstance(output, Tensor) or output.shape != like.shape:
        raise ValueError(f"nonlinearity: expected a function that keeps the shape of its input, got {nonlinearity!r}")
    return f


def sign_of(activation: Callable[[Tensor], Tensor], units: int, like: Tensor) -> Tensor | None:
    """The diagonal of S in a bipolar activation S f(S x), in the dtype and on the device of ``like``; else None."""
    if not isinstance(activation, ChannelActivation):
        return None
    return signs(units, activation.pattern, dtype=like.dtype, device=like.device)
