"""The plan of a wavefront pass: its fronts, and the settings that all of them share."""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import Tensor

from bipolar._activations.kernels import Kernel
from bipolar._rnn.blocks import Blocks
from bipolar._rnn.drops import Drops
from bipolar._rnn.noise import Noise, layers_at


class Front(NamedTuple):
    """The cells of the layers from ``low`` up to, not including, ``high``, and the layout of their tensor.

    The tensor covers the layers from ``start`` up to, not including, ``stop``. Beside the cells it has one place at the
    lower end for the stack's input at the next time step, as the value of a layer -1, and one at the upper end for the
    initial state of the next layer, as long as there are such.
    """

    d: int
    low: int
    high: int
    start: int
    stop: int
    #: the lowest layer here that ends a block with a skip; ``high`` if there is none
    skip: int
    #: the layers of dropped blocks
    dropped: list[int]
    #: where a cell starts from zeros, (cells, batch, 1); None if none does
    reset: Tensor | None = None
    #: the layers and sequences of the cells that are the last of a sequence; None if all sequences end together
    ends: tuple[Tensor, Tensor] | None = None
    #: the values that recurrent dropout takes from the states before the cells; None if there is none
    forgotten: Drops | None = None

    def of(self, tensor: Tensor, low: int, high: int, step: int = 1) -> Tensor:
        """The part of the front's tensor that belongs to these layers."""
        return tensor[low - self.start : high - self.start : step]

    def cells(self, tensor: Tensor) -> Tensor:
        """The part of the front's tensor that belongs to its cells."""
        return self.of(tensor, self.low, self.high)

    def after_reset(self, tensor: Tensor, low: int, high: int) -> Tensor:
        """States before the cells of these layers, or gradients on them, with zeros where a cell starts from zeros."""
        return tensor if self.reset is None else tensor.masked_fill(self.reset[low - self.low : high - self.low], 0)


class Plan(NamedTuple):
    """Everything that a pass along the diagonals depends on, but input, state and parameters."""

    steps: int
    blocks: Blocks
    #: the factor of a skip: skip_scale, and the factor 1 / (1 - p) of dropout
    alpha: float
    noise: Noise
    kernel: Kernel
    sign: Tensor
    #: whether a backward pass may follow
    keep: bool
    #: (time, batch) and (batch); see :class:`bipolar._rnn.stack_pass.StackPass`
    reset: Tensor | None
    ends: Tensor | None

    @property
    def layers(self) -> int:
        return self.blocks.num_layers

    @property
    def every(self) -> int:
        return self.blocks.every or self.layers + self.steps + 1  # farther than any front

    @property
    def noisy(self) -> bool:
        """Whether the layer above may see other values than the next time step."""
        return self.noise.output is not None or self.noise.dropped is not None

    def fronts(self) -> list[Front]:
        """The fronts from d = -1, which has no cells, to the last."""
        dropped: dict[int, list[int]] = {}
        if self.noise.dropped is not None:
            for t, block in self.noise.dropped.nonzero().tolist():
                for i in range(block * self.every, (block + 1) * self.every):
                    if self.blocks.droppable(i):
                        dropped.setdefault(i + t, []).append(i)
        reset, ends = self.reset, self.ends
        fronts = []
        for d in range(-1, self.layers + self.steps - 1):
            layers = layers_at(d, self.layers, self.steps)
            skip = next((i for i in layers if self.blocks.has_skip(i)), layers.stop)
            start, stop = max(-1, d - self.steps + 1), min(self.layers, d + 2)
            front = Front(d, layers.start, layers.stop, start, stop, skip, dropped.get(d, []))
            if self.noise.recurrent is not None and layers:
                front = front._replace(forgotten=self.noise.recurrent.rows(layers.start, layers.stop))
            if reset is not None:
                front = front._replace(reset=_along(reset, layers, d))
            if ends is not None:
                front = front._replace(ends=_ending(ends, layers, d))
            fronts.append(front)
        return fronts

    def conjugated(self, parameters: Sequence[Tensor | None]) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """U of the lowest layer, U of the others, W and b of all, with the signs and the scale of dropout in them."""
        us, ws, bs = (cast(list[Tensor], parameters[i * self.layers : (i + 1) * self.layers]) for i in range(3))
        both, w = self.sign[:, None] * self.sign, torch.stack(ws)
        u = torch.stack(us[1:]) if self.layers > 1 else w.new_empty(0, *both.shape)
        bias = None if bs[0] is None else torch.stack(bs).mul_(self.sign)
        scaled = both * self.noise.scale, both * self.noise.recurrent_scale
        return us[0] * self.sign[:, None], u.mul_(scaled[0]), w.mul_(scaled[1]), bias

    def passing(self, front: Front) -> list[int]:
        """The layers of a front that end a dropped block, and hand up what entered it."""
        return [i for i in front.dropped if self.blocks.has_skip(i)]

    def handed_up(self, front: Front, h: Tensor, passed: Sequence[Tensor], out: Tensor) -> Tensor:
        """The values that the layers above see: the states, but for dropout and for dropped blocks.

        They are computed for the forward pass and once more for the backward pass, in memory that is at hand: that
        takes less time than memory to keep them in.
        """
        output = self.noise.output
        if output is None and not passed:
            return h
        values = out[: len(h)].copy_(h)
        if output is not None and front.low < front.high:
            output.fronts[front.d].zero_(front.cells(values))
        for i, value in zip(self.passing(front), passed, strict=True):
            values[i - front.start] = value
        return values

    @contextmanager
    def past(self, fronts: Sequence[Front], h: Sequence[Tensor], j: int) -> Iterator[Tensor]:
        """The states of the time step before for the cells of front ``j``, after resets and recurrent dropout.

        Dropout takes values out of ``h`` itself, until the end.
        """
        front = fronts[j]
        past = front.after_reset(fronts[j - 1].of(h[j - 1], front.low, front.high), front.low, front.high)
        with contextlib.nullcontext() if front.forgotten is None else front.forgotten.absent(past):
            yield past

    def scratch(self, fronts: Sequence[Front], like: Tensor) -> Tensor:
        """Memory for the values that a front hands up."""
        largest = max(front.stop - front.start for front in fronts) if self.noisy else 0
        return like.new_empty(largest, *like.shape[1:])


def _along(reset: Tensor, layers: range, d: int) -> Tensor | None:
    """A mask (time, batch) along the front d, (cells, batch, 1); None if it is nowhere true."""
    here = reset[d - layers.stop + 1 : d - layers.start + 1].flip(0).unsqueeze(2)
    return here if bool(here.any()) else None


def _ending(ends: Tensor, layers: range, d: int) -> tuple[Tensor, Tensor]:
    """The layers and sequences in the front d that are at the last time step of the sequence."""
    layer = d - ends
    (sequences,) = torch.where((layer >= layers.start) & (layer < layers.stop))
    return layer[sequences], sequences
