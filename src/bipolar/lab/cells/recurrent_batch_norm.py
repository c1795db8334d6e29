"""The LSTM with batch normalisation within its recurrence."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bipolar.lab.cells.arguments import check_counts
from bipolar.lab.cells.lstm import gated, orthogonal_
from bipolar.lab.cells.protocol import Cell, Dice, Drawn, State, uniform_


class StepBatchNorm(nn.Module):
    r"""Batch normalisation with a mean and a variance for each time step, and one gain (and bias) for all of them.

    .. math:: \text{BN}_t(x) = \gamma \odot \frac{x - \mu_t}{\sqrt{\sigma_t^2 + \varepsilon}} + \beta

    Args:
        width: the number of units
        max_steps: the number of time steps with statistics of their own
        gamma: the start of the gains
        bias: whether there is a :math:`\beta`, which starts at zero
        momentum: the share of a batch in the running statistics
        eps: :math:`\varepsilon`
    """

    mean: Tensor
    variance: Tensor

    def __init__(
        self, width: int, max_steps: int, *, gamma: float, bias: bool = False, momentum: float = 0.05, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.gamma = nn.Parameter(torch.full((width,), gamma))
        self.beta = nn.Parameter(torch.zeros(width)) if bias else None
        self.register_buffer("mean", torch.zeros(max_steps, width))
        self.register_buffer("variance", torch.ones(max_steps, width))

    def forward(self, x: Tensor, step: int) -> Tensor:
        # A row of a buffer is a view of it: in training its running statistics are updated in place.
        mean, variance = self.mean[step], self.variance[step]
        return F.batch_norm(x, mean, variance, self.gamma, self.beta, self.training, self.momentum, self.eps)


class BatchNormLSTM(Cell):
    r"""An LSTM whose two products are normalised over the batch, and its cell on the way to the output.

    .. math::
        (i_t, f_t, o_t, g_t) &= \text{BN}_t(W x_t; \gamma_x) + \text{BN}_t(U h_{t-1}; \gamma_h) + b \\
        c_t &= \sigma(f_t) \odot c_{t-1} + \sigma(i_t) \odot \tanh(g_t) \\
        h_t &= \sigma(o_t) \odot \tanh(\text{BN}_t(c_t; \gamma_c, \beta_c))

    Each :math:`\text{BN}_t` has statistics of its own for each time step: those of the batch in training, running ones
    in evaluation. Time counts from the first step of each call, also where a state is carried: a text in windows sees
    the statistics of the first step at the beginning of each window. Steps after ``max_steps`` share the statistics of
    the last, in training also its updates; in evaluation also steps after the last that training has seen.

    Reference: Cooijmans et al., `Recurrent Batch Normalization <https://arxiv.org/abs/1603.09025>`_, 2016: 1,000 units
    on Penn Treebank, in sequences of 100, and 2,000 units on Text8, in sequences of 180. As in the released code,
    running statistics take 0.05 of each batch, :math:`\varepsilon` is 0.00001, and the bias of the forget gate starts
    at 1. That code keeps the biased variance; torch, and we, the unbiased one. Each :math:`U_k` starts orthogonal; that
    code starts the candidate's at the identity unless told otherwise.

    Args:
        input_size: the width of the input
        hidden_size: the width of the layer
        max_steps: the number of time steps with statistics of their own, as a rule the length of a training sequence
        gamma: the start of all gains; 1 would saturate the gates. Default: 0.1
        forget_bias: the start of :math:`b_f`. Default: 1

    Examples::

        >>> layer = BatchNormLSTM(8, 16, max_steps=5)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 32]))
    """

    seen: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, max_steps: int, gamma: float = 0.1, forget_bias: float = 1.0
    ) -> None:
        super().__init__(input_size, hidden_size)
        check_counts(max_steps=max_steps)
        self.sizes, self.max_steps = (hidden_size, hidden_size), max_steps
        # The gates stand in the order i, f, o, g.
        self.input = nn.Parameter(torch.empty(4 * hidden_size, input_size))
        self.recurrent = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(4 * hidden_size))
        self.input_norm = StepBatchNorm(4 * hidden_size, max_steps, gamma=gamma)
        self.recurrent_norm = StepBatchNorm(4 * hidden_size, max_steps, gamma=gamma)
        self.cell_norm = StepBatchNorm(hidden_size, max_steps, gamma=gamma, bias=True)
        #: the number of steps that have statistics from training; before it, 0
        self.register_buffer("seen", torch.tensor(0))
        uniform_([self.input], hidden_size)
        orthogonal_(self.recurrent, 4)
        nn.init.constant_(self.bias[hidden_size : 2 * hidden_size], forget_bias)

    def prepare(self, x: Tensor) -> Tensor:
        products = zip(self._rows(len(x)).tolist(), F.linear(x, self.input), strict=True)
        return torch.stack([self.input_norm(product, row) for row, product in products]) + self.bias

    def draw(self, steps: int, batch: int, dice: Dice) -> Drawn:
        # No noise, but rows of steps; on the CPU, where to read one at each step does not wait for a device.
        return Drawn(each=(self._rows(steps),))

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        h, c = state
        row = int(each[0])
        o, c = gated(x + self.recurrent_norm(h @ self.recurrent.T, row), c)
        h = o * torch.tanh(self.cell_norm(c, row))
        return h, (h, c)

    @torch.no_grad()
    def _rows(self, steps: int) -> Tensor:
        """The row of the statistics for each step."""
        if self.training:
            self.seen.clamp_(min=min(steps, self.max_steps))
        last = self.max_steps if self.training else int(self.seen) or self.max_steps
        return torch.arange(steps).clamp(max=last - 1)
