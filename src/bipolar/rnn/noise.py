r"""The three kinds of dropout of a stacked RNN, drawn beforehand.

All random numbers of a training pass are drawn here, in one order, so that every backend sees the same masks and a
given generator repeats a pass exactly.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Noise(NamedTuple):
    """Masks that multiply, already scaled by 1 / (1 - p); None where nothing is dropped."""

    #: between layers: on the stack's input, (time, batch, input_size)
    input: Tensor | None
    #: between layers: on every layer's output, (num_layers, time, batch, hidden_size)
    output: Tensor | None
    #: rnnDrop: on h(t-1), one mask for a whole sequence, (num_layers, batch, hidden_size)
    recurrent: Tensor | None
    #: which blocks are dropped at which time step, for the whole batch, (time, blocks)
    dropped: Tensor | None


SILENCE = Noise(None, None, None, None)


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
    state = (batch, hidden_size)

    def mask(p: float, *shape: int) -> Tensor | None:
        if not p:
            return None
        device = generator.device if generator is not None else input.device
        keep = torch.rand(shape, generator=generator, device=device) >= p
        return keep.to(input) / (1 - p)

    first = mask(dropout, *input.shape)
    between = mask(dropout, num_layers, time, *state)
    recurrent = mask(recurrent_dropout, num_layers, *state)
    kept = mask(block_dropout, time, blocks) if blocks else None
    return Noise(first, between, recurrent, None if kept is None else kept == 0)
