"""Cells whose output is a function of the state of the same step: it is computed for all time steps at once."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from bipolar.lab.cells.protocol import Cell, Dice, State


class Finishing(Cell):
    r"""A cell with an output layer outside of its recurrence.

    .. math:: r_t, s_t = \text{advance}(\text{prepare}(x)_t, s_{t-1}), \quad y = \text{finish}(r)

    A subclass gives :meth:`advance` and :meth:`finish` in place of :meth:`step`.
    """

    @abstractmethod
    def advance(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        """What :meth:`finish` needs, (batch, ...), and the next state; arguments as for :meth:`step`."""

    @abstractmethod
    def finish(self, raw: Tensor) -> Tensor:
        """The outputs, from what :meth:`advance` returned for one step or, stacked, for all."""

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        raw, state = self.advance(x, state, once, each)
        return self.finish(raw), state

    def forward(
        self, x: Tensor, state: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        steps, batch = x.shape[:2]
        parts = self.begin(batch, x) if state is None else tuple(state[0].split(self.sizes, dim=-1))
        once, each = self.draw(steps, batch, Dice(generator, x))
        rows = zip(*(tensor.unbind(0) for tensor in each), strict=True) if each else (() for _ in range(steps))
        raws = []
        for row, noise in zip(self.prepare(x).unbind(0), rows, strict=True):
            raw, parts = self.advance(row, parts, once, noise)
            raws.append(raw)
        return self.finish(torch.stack(raws)), torch.cat(parts, dim=-1).unsqueeze(0)
