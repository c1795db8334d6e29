r"""The three kinds of dropout of a stacked RNN, drawn beforehand.

All random numbers of a training pass are drawn here, in one order, so that every backend sees the same masks and a
given generator repeats a pass exactly.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Noise(NamedTuple):
    """Masks that multiply; None where nothing is dropped."""

    #: between layers: on the stack's input, (time, batch, input_size), 1 where a value stays and 0 where it is dropped
    input: Tensor | None
    #: between layers: on every layer's output, (num_layers, time, batch, hidden_size), likewise
    output: Tensor | None
    #: what both are to be multiplied by, 1 / (1 - p)
    scale: float
    #: rnnDrop: on h(t-1), one mask for a whole sequence, (num_layers, batch, hidden_size), with its scale in it
    recurrent: Tensor | None
    #: which blocks are dropped at which time step, for the whole batch, (time, blocks)
    dropped: Tensor | None


SILENCE = Noise(None, None, 1.0, None, None)

#: Probabilities are rounded to multiples of one in this many, so that one random word decides about four values. Drawing
#: is most of what dropout costs, on a CPU.
LEVELS = 2**16


def draw_noise(
    input: Tensor,
    num_layers: int,
    hidden_size: int,
    blocks: int,
    *,
    dropout: float,
    recurrent_dropout: float,
    block_dropout: float,
    generator: torch.Generator | None,
) -> Noise:
    """Noise for an input of shape (time, batch, input_size)."""
    time, batch, _ = input.shape
    device = generator.device if generator is not None else input.device

    def kept(p: float, *shape: int) -> Tensor:
        count = torch.Size(shape).numel()
        words = torch.empty(-(-count // 4), dtype=torch.int64, device=device).random_(-(2**63), None, generator=generator)
        lanes = words.view(torch.int16)[:count].view(shape)
        torch.ge(lanes, _dropped_levels(p) - LEVELS // 2, out=lanes)
        return lanes.to(input.device, torch.int8)

    first = between = recurrent = dropped = None
    if dropout:
        first = kept(dropout, *input.shape)
        # one layer at a time, in memory that is already there
        between = torch.empty(num_layers, time, batch, hidden_size, dtype=torch.int8, device=input.device)
        for layer in between:
            layer.copy_(kept(dropout, time, batch, hidden_size))
    if recurrent_dropout:
        mask = kept(recurrent_dropout, num_layers, batch, hidden_size)
        recurrent = mask.to(input.dtype) * _scale(recurrent_dropout)
    if block_dropout and blocks:
        dropped = kept(block_dropout, time, blocks) == 0
    return Noise(first, between, _scale(dropout), recurrent, dropped)


def _dropped_levels(p: float) -> int:
    return min(round(p * LEVELS), LEVELS - 1)


def _scale(p: float) -> float:
    return LEVELS / (LEVELS - _dropped_levels(p))
