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


def under_autocast(
    input: Tensor, state: Tensor | None, weights: LayerWeights
) -> tuple[Tensor, Tensor | None, LayerWeights]:
    """Input, state and weights in the precision of autocast, if it is on."""
    kind = input.device.type
    if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        return input, state, weights
    dtype = torch.get_autocast_dtype(kind)
    lower = [(u.to(dtype), w.to(dtype), None if b is None else b.to(dtype)) for u, w, b in weights]
    return input.to(dtype), None if state is None else state.to(dtype), lower
