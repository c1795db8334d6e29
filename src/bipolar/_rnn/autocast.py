"""Autocast around a stack: its precision is applied once at the entrance, not at every operation."""

import contextlib
from typing import Any

import torch
from torch import Tensor

from bipolar._rnn.stack_pass import LayerWeights


def without_autocast(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Switches autocast off for the device of ``x``."""
    kind = x.device.type
    available = torch.amp.is_autocast_available(kind)
    return torch.autocast(kind, enabled=False) if available else contextlib.nullcontext()


def is_cast(x: Tensor, own: torch.dtype) -> bool:
    """Whether autocast is on for the device of ``x``, and for weights of the type ``own``."""
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind) and own != torch.float64


def under_autocast(
    input: Tensor, state: Tensor | None, weights: LayerWeights
) -> tuple[Tensor, Tensor | None, LayerWeights]:
    """Input, state and weights in the precision of autocast, if it is on and they are not in double precision."""
    own = weights[0][0].dtype
    if is_cast(input, own):
        dtype = torch.get_autocast_dtype(input.device.type)
        weights = [(u.to(dtype), w.to(dtype), None if b is None else b.to(dtype)) for u, w, b in weights]
        return input.to(dtype), state.to(dtype) if isinstance(state, Tensor) else state, weights
    if input.dtype != own:
        raise TypeError(f"input: expected {own} as the weights are, got {input.dtype}")
    return input, state, weights
