"""The gated recurrent unit."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from bipolar.lab.cells.arguments import check_rates
from bipolar.lab.cells.lstm import orthogonal_
from bipolar.lab.cells.protocol import Cell, Dice, Drawn, State, between, uniform_

Reset: TypeAlias = Literal["before", "after"]


class GRU(Cell):
    r"""A layer of gated recurrent units.

    .. math::
        r_t, z_t &= \sigma(W_k x_t + U_k h_{t-1} + b_k) \quad \text{for } k \in \{r, z\} \\
        n_t &= \tanh(W_n x_t + b_n + U_n (r_t \odot h_{t-1})) \\
        h_t &= z_t \odot h_{t-1} + (1 - z_t) \odot n_t

    Reference: Cho et al., `Learning Phrase Representations using RNN Encoder-Decoder
    <https://arxiv.org/abs/1406.1078>`_, 2014; with :class:`~bipolar.lab.cells.zoneout.Zoneout` in Krueger et al.,
    `Zoneout <https://arxiv.org/abs/1606.01305>`_, 2016, whose released code has this form. Each :math:`U_k` starts
    orthogonal, as there, W as in torch's own cells, and biases at zero. Dropout is that of
    :class:`~bipolar.lab.cells.lstm.LSTM`, with the same references.

    Args:
        input_size: the width of the input
        hidden_size: the width of the layer
        reset: ``"before"``, or ``"after"`` for torch's form, with one matrix product a step in place of two:
            :math:`n_t = \tanh(W_n x_t + b_n + r_t \odot (U_n h_{t-1} + b_u))`. Default: ``"before"``
        recurrent_dropout: the rate of dropout on :math:`n_t`, with a mask for each step. Default: 0
        rnn_drop: the rate of dropout on :math:`h_{t-1}` where the products read it, with one mask a sequence.
            Default: 0

    Examples::

        >>> layer = GRU(8, 16)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 16]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        reset: Reset = "before",
        recurrent_dropout: float = 0.0,
        rnn_drop: float = 0.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        check_rates(recurrent_dropout=recurrent_dropout, rnn_drop=rnn_drop)
        if reset not in get_args(Reset):
            raise ValueError(f"reset: expected one of {', '.join(map(repr, get_args(Reset)))}, got {reset!r}")
        self.sizes = (hidden_size,)
        self.recurrent_dropout, self.rnn_drop = recurrent_dropout, rnn_drop
        # The gates stand in the order r, z, n.
        self.input = nn.Parameter(torch.empty(3 * hidden_size, input_size))
        self.recurrent = nn.Parameter(torch.empty(3 * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(3 * hidden_size))
        self.inner_bias = nn.Parameter(torch.zeros(hidden_size)) if reset == "after" else None
        uniform_([self.input], hidden_size)
        orthogonal_(self.recurrent, 3)

    def prepare(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.input, self.bias)

    def draw(self, steps: int, batch: int, dice: Dice) -> Drawn:
        shape = batch, self.hidden_size
        return Drawn(
            self.dropped(dice, self.rnn_drop, *shape),
            self.dropped(dice, self.recurrent_dropout, steps, *shape),
        )

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        (h,) = state
        seen, gates = h * once[0] if once else h, 2 * self.hidden_size
        if self.inner_bias is None:
            r, z = torch.sigmoid(torch.addmm(x[:, :gates], seen, self.recurrent[:gates].T)).chunk(2, dim=-1)
            n = torch.tanh(torch.addmm(x[:, gates:], r * seen, self.recurrent[gates:].T))
        else:
            sums = seen @ self.recurrent.T
            r, z = torch.sigmoid(x[:, :gates] + sums[:, :gates]).chunk(2, dim=-1)
            n = torch.tanh(torch.addcmul(x[:, gates:], r, sums[:, gates:] + self.inner_bias))
        if each:
            n = n * each[0]
        h = between(n, h, z)
        return h, (h,)
