"""The three kinds of dropout of a stack, drawn before the pass.

All random numbers of a training pass are drawn here, in one order: every backend sees the same masks, and a given
generator repeats a pass exactly. Masks on outputs are stored front by front: a front is a diagonal of the stack over
time, all cells with i + t = d for layer i and time t.
"""

from typing import NamedTuple

import torch
from torch import Tensor


def layers_at(d: int, layers: int, steps: int) -> range:
    """The layers of the front d, which holds layer i at time d - i."""
    return range(max(0, d - steps + 1), min(layers, d + 1))


class Noise(NamedTuple):
    """The masks of a pass; None where nothing is dropped."""

    #: masks on the output of every layer, 1 where a value stays and 0 where it is dropped: one for each front, of shape
    #: (layers of the front, batch, hidden_size)
    output: list[Tensor] | None
    #: the factor 1 / (1 - p) that belongs to ``output``
    scale: float
    #: rnnDrop: the mask on h(t-1) for the whole sequence, (num_layers, batch, hidden_size), scaled already
    recurrent: Tensor | None
    #: whether a block is dropped at a time step, for the whole batch, (time, blocks)
    dropped: Tensor | None

    def output_at(self, layer: int, t: int, layers: int, steps: int) -> Tensor:
        """The mask of one cell, of shape (batch, hidden_size)."""
        assert self.output is not None  # noqa: S101 - for the type checker
        d = layer + t
        return self.output[d][layer - layers_at(d, layers, steps).start]

    def within(self, low: int, high: int, every: int, layers: int, steps: int) -> "Noise":
        """The noise of the layers from ``low`` up to ``high``, whole blocks of ``every`` layers."""
        output = self.output
        if output is not None:
            parts = []
            for d in range(high - low + steps - 1):
                here, whole = layers_at(d, high - low, steps), layers_at(d + low, layers, steps)
                parts.append(output[d + low][here.start + low - whole.start : here.stop + low - whole.start])
            output = parts
        return Noise(
            output,
            self.scale,
            None if self.recurrent is None else self.recurrent[low:high],
            None if self.dropped is None else self.dropped[:, low // every : -(-high // every)],
        )


SILENCE = Noise(None, 1.0, None, None)

#: Probabilities are rounded to this many levels, so that one random word decides about four values: drawing takes
#: most of the time of dropout on a CPU.
LEVELS = 2**16


class Dice:
    """Draws masks on the device of the generator and moves them to the device of the stack's input."""

    def __init__(self, generator: torch.Generator | None, device: torch.device) -> None:
        self.generator = generator
        self.source = device if generator is None else generator.device
        self.device = device

    def kept(self, p: float, *shape: int) -> Tensor:
        """A mask of small integers: 1 with probability 1 - p, else 0."""
        count = torch.Size(shape).numel()
        words = torch.empty(-(-count // 4), dtype=torch.int64, device=self.source)
        words.random_(-(2**63), None, generator=self.generator)
        lanes = words.view(torch.int16)[:count].view(shape)
        return torch.ge(lanes, _dropped_levels(p) - LEVELS // 2, out=lanes).to(self.device)


def dropped_out(input: Tensor, p: float, dice: Dice) -> Tensor:
    """The stack's input after dropout."""
    return input * dice.kept(p, *input.shape) * _scale(p) if p else input


def draw_noise(
    input: Tensor,
    num_layers: int,
    hidden_size: int,
    blocks: int,
    dice: Dice,
    *,
    dropout: float,
    recurrent_dropout: float,
    block_dropout: float,
) -> Noise:
    """Noise for the layers of a stack, for an input of shape (time, batch, input_size)."""
    time, batch, _ = input.shape
    output = recurrent = dropped = None
    if dropout:
        fronts = (len(layers_at(d, num_layers, time)) for d in range(num_layers + time - 1))
        output = [dice.kept(dropout, cells, batch, hidden_size) for cells in fronts]
    if recurrent_dropout:
        mask = dice.kept(recurrent_dropout, num_layers, batch, hidden_size)
        recurrent = mask.to(input.dtype) * _scale(recurrent_dropout)
    if block_dropout and blocks:
        dropped = dice.kept(block_dropout, time, blocks) == 0
    return Noise(output, _scale(dropout), recurrent, dropped)


def _dropped_levels(p: float) -> int:
    return min(round(p * LEVELS), LEVELS - 1)


def _scale(p: float) -> float:
    return LEVELS / (LEVELS - _dropped_levels(p))
