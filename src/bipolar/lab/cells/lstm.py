"""The LSTM, with dropout on its recurrence, and with layer or weight normalisation."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bipolar.lab.cells.arguments import check_rates
from bipolar.lab.cells.protocol import Cell, Dice, Drawn, State, uniform_


def orthogonal_(weight: Tensor, gates: int) -> None:
    """Starts the matrix of each gate as an orthogonal one."""
    for part in weight.detach().chunk(gates):
        nn.init.orthogonal_(part)


def gated(sums: Tensor, c: Tensor, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The output gate and the next cell, from the sums of the gates i, f and o and of the candidate, side by side.

    ``kept`` is a mask of dropout for the candidate.
    """
    width = c.shape[-1]
    i, f, o = torch.sigmoid(sums[:, : 3 * width]).chunk(3, dim=-1)  # one sigmoid: the candidate stands last
    g = torch.tanh(sums[:, 3 * width :])
    if kept is not None:
        g = g * kept
    return o, torch.addcmul(f * c, i, g)


class LSTM(Cell):
    r"""A layer of long short-term memory.

    .. math::
        i_t, f_t, o_t &= \sigma(W_k x_t + U_k h_{t-1} + b_k) \quad \text{for } k \in \{i, f, o\} \\
        g_t &= \tanh(W_g x_t + U_g h_{t-1} + b_g) \\
        c_t &= f_t \odot c_{t-1} + i_t \odot g_t \\
        h_t &= o_t \odot \tanh(c_t)

    Its state is :math:`(h, c)`. Zoneout and stochastic depth are wrappers, in :mod:`bipolar.lab.cells.zoneout`. Each
    :math:`U_k` starts orthogonal, and biases at zero but for that of the forget gate, as in the released code of
    Krueger et al. (2016), Cooijmans et al. (2016) and Ha et al. (2016). These start W in different ways; we start it as
    torch's own cells do.

    Args:
        input_size: the width of the input
        hidden_size: the width of the layer
        forget_bias: the start of :math:`b_f`. Default: 1
        recurrent_dropout: the rate of dropout on :math:`g_t`, which leaves the memory alone: Semeniuta et al.,
            `Recurrent Dropout without Memory Loss <https://arxiv.org/abs/1603.05118>`_, 2016. The paper tries masks
            drawn once a step and once a sequence; we draw them once a step, as Ha et al. do, with a rate of 0.1.
            Default: 0
        rnn_drop: the rate of dropout on :math:`h_{t-1}` where the gates read it, with one mask a sequence, the same
            for all gates: Moon et al., `RnnDrop: A Novel Dropout for RNNs in ASR
            <https://www.stat.berkeley.edu/~tsmoon/files/Conference/asru2015.pdf>`_, 2015. They drop :math:`c_t`, and
            with it what the cell remembers; we drop what goes through the recurrent weights, as Gal & Ghahramani,
            `A Theoretically Grounded Application of Dropout in Recurrent Neural Networks
            <https://arxiv.org/abs/1512.05287>`_, 2016, do with tied weights. Default: 0
        layer_norm: normalise the sum of each gate, :math:`\text{LN}(W_k x_t + U_k h_{t-1}; \gamma_k) + b_k`, and the
            cell on its way to the output, :math:`h_t = o_t \odot \tanh(\text{LN}(c_t; \gamma_c) + b_c)`: Ba et al.,
            `Layer Normalization <https://arxiv.org/abs/1607.06450>`_, 2016, in the form of Ha et al., `HyperNetworks
            <https://arxiv.org/abs/1609.09106>`_, 2016: one norm for both products, gains that start at 1, and 0.001
            beside the variance, as in their released code. They train 1,000 units on Penn Treebank. Default: ``False``
        weight_norm: each row of W and U is :math:`\gamma v / \lVert v \rVert`, with gains that leave the weights as
            they started: Salimans & Kingma, `Weight Normalization <https://arxiv.org/abs/1602.07868>`_, 2016. It is
            refused together with ``layer_norm``, which sets the scale of a gate by itself. Default: ``False``

    Examples::

        >>> layer = LSTM(8, 16, recurrent_dropout=0.1)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 32]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        forget_bias: float = 1.0,
        recurrent_dropout: float = 0.0,
        rnn_drop: float = 0.0,
        layer_norm: bool = False,
        weight_norm: bool = False,
    ) -> None:
        super().__init__(input_size, hidden_size)
        check_rates(recurrent_dropout=recurrent_dropout, rnn_drop=rnn_drop)
        if layer_norm and weight_norm:
            raise ValueError("weight_norm: expected False with layer_norm, which sets the scale of a gate, got True")
        self.sizes = (hidden_size, hidden_size)
        self.recurrent_dropout, self.rnn_drop = recurrent_dropout, rnn_drop
        # The gates stand in the order i, f, o, g.
        self.input = nn.Parameter(torch.empty(4 * hidden_size, input_size))
        self.recurrent = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(4 * hidden_size))
        uniform_([self.input], hidden_size)
        orthogonal_(self.recurrent, 4)
        nn.init.constant_(self.bias[hidden_size : 2 * hidden_size], forget_bias)
        self.norm = nn.LayerNorm(hidden_size, eps=1e-3) if layer_norm else None
        self.gain = nn.Parameter(torch.ones(4 * hidden_size)) if layer_norm else None
        self.input_gain = nn.Parameter(self.input.detach().norm(dim=1)) if weight_norm else None
        self.recurrent_gain = nn.Parameter(self.recurrent.detach().norm(dim=1)) if weight_norm else None

    def prepare(self, x: Tensor) -> Tensor:
        return F.linear(x, _scaled(self.input, self.input_gain), self.bias if self.norm is None else None)

    def draw(self, steps: int, batch: int, dice: Dice) -> Drawn:
        # The recurrent weight is among what holds for a sequence: it is normalised once, not at every step.
        recurrent, shape = _scaled(self.recurrent, self.recurrent_gain).T, (batch, self.hidden_size)
        return Drawn(
            (recurrent, *self.dropped(dice, self.rnn_drop, *shape)),
            self.dropped(dice, self.recurrent_dropout, steps, *shape),
        )

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        h, c = state
        recurrent, *kept = once
        sums = torch.addmm(x, h * kept[0] if kept else h, recurrent)
        if self.gain is not None:
            normed = F.layer_norm(sums.unflatten(-1, (4, -1)), (self.hidden_size,), eps=1e-3).flatten(-2)
            sums = torch.addcmul(self.bias, normed, self.gain)
        o, c = gated(sums, c, each[0] if each else None)
        h = o * torch.tanh(c if self.norm is None else self.norm(c))
        return h, (h, c)


def _scaled(weight: Tensor, gain: Tensor | None) -> Tensor:
    """The weight, its rows scaled to the gains."""
    return weight if gain is None else F.normalize(weight, dim=1) * gain.unsqueeze(1)
