"""Zoneout and stochastic depth: at random, a state stays what it was for a step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bipolar.lab.cells.arguments import check_rates
from bipolar.lab.cells.protocol import Cell, Dice, Drawn, State


class _Held(Cell):
    """A cell, parts of whose state are held: ``masks`` has the rate and width of each mask, ``of`` the mask of each
    part, or None."""

    def __init__(self, cell: Cell, masks: Sequence[tuple[float, int]], of: Sequence[int | None]) -> None:
        super().__init__(cell.input_size, cell.hidden_size)
        self.cell, self.sizes = cell, cell.sizes
        self.masks, self.of = tuple(masks), tuple(of)

    def begin(self, batch: int, like: Tensor) -> State:
        return self.cell.begin(batch, like)

    def prepare(self, x: Tensor) -> Tensor:
        return self.cell.prepare(x)

    def finish(self, outputs: Tensor) -> Tensor:
        return self.cell.finish(outputs)

    def draw(self, steps: int, batch: int, dice: Dice) -> Drawn:
        if self.training:
            updated = [dice.kept(rate, steps, batch, width) for rate, width in self.masks]
        else:
            updated = [dice.like.new_full((), 1 - rate).expand(steps, 1, 1) for rate, _ in self.masks]
        inner = self.cell.draw(steps, batch, dice)
        return Drawn(inner.once, (*updated, *inner.each))

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        updated = each[: len(self.masks)]
        output, new = self.cell.step(x, state, once, each[len(self.masks) :])
        if output is not new[0]:
            raise TypeError(
                f"cell: expected one whose output is the first part of its state, got {type(self.cell).__name__}"
            )
        held = tuple(
            after if mask is None else torch.addcmul(before, updated[mask], after - before)
            for before, after, mask in zip(state, new, self.of, strict=True)
        )
        return held[0], held


class Zoneout(_Held):
    r"""A cell, units of whose state keep their values for a step at random.

    .. math::
        s_t = d_t \odot s_{t-1} + (1 - d_t) \odot \tilde{s}_t, \qquad \tilde{s}_t = \text{cell}(x_t, s_{t-1})

    for each part s of the state, with :math:`d_t` 1 at the rate of the part, drawn for each unit, step and sequence; in
    evaluation :math:`d_t` is the rate itself. The output is the first part. The hidden units of an LSTM see the cell
    before zoneout, in the paper and here: :math:`\tilde{h}_t = o_t \odot \tanh(\tilde{c}_t)`.

    Reference: Krueger et al., `Zoneout: Regularizing RNNs by Randomly Preserving Hidden Activations
    <https://arxiv.org/abs/1606.01305>`_, 2016. On Penn Treebank by characters it has 1,000 LSTM units with rates of 0.5
    for cells and 0.05 for hidden units, trained by Adam at 0.002 on windows of 100, gradients clipped to a norm of 1.
    The paper's network without gates is tanh; the released script has a ReLU in its place.

    Args:
        cell: the cell; its output must be the first part of its state
        rates: one rate, or one for each part of the state: (hidden, cell) for an LSTM

    Examples::

        >>> from bipolar.lab.cells.lstm import LSTM
        >>> layer = Zoneout(LSTM(8, 16), (0.05, 0.5))
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 32]))
    """

    def __init__(self, cell: Cell, rates: float | Sequence[float]) -> None:
        rates = [rates] * len(cell.sizes) if isinstance(rates, int | float) else list(rates)
        if len(rates) != len(cell.sizes):
            raise ValueError(f"rates: expected one, or one for each of {len(cell.sizes)} parts, got {rates}")
        for rate in rates:
            check_rates(rates=rate)
        parts = [part for part, rate in enumerate(rates) if rate]
        super().__init__(
            cell,
            [(rates[part], cell.sizes[part]) for part in parts],
            [parts.index(part) if rate else None for part, rate in enumerate(rates)],
        )
        self.rates = tuple(rates)


class StochasticDepth(_Held):
    r"""A cell whose whole state stays what it was for a step, at random.

    .. math:: s_t = s_{t-1} \text{ with probability } p, \text{ else } \text{cell}(x_t, s_{t-1})

    One draw holds for all units and parts of the state of a sequence at a step. In evaluation the state is the mean of
    both, as for :class:`Zoneout`.

    Reference: Huang et al., `Deep Networks with Stochastic Depth <https://arxiv.org/abs/1603.09382>`_, 2016, over time
    in place of layers by Krueger et al., `Zoneout: Regularizing RNNs by Randomly Preserving Hidden Activations
    <https://arxiv.org/abs/1606.01305>`_, 2016.

    Args:
        cell: the cell; its output must be the first part of its state
        rate: p

    Examples::

        >>> from bipolar.lab.cells.lstm import LSTM
        >>> layer = StochasticDepth(LSTM(8, 16), 0.1)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 32]))
    """

    def __init__(self, cell: Cell, rate: float) -> None:
        check_rates(rate=rate)
        super().__init__(cell, [(rate, 1)] if rate else [], [0 if rate else None] * len(cell.sizes))
        self.rate = rate
