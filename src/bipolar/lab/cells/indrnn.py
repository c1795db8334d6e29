"""The independently recurrent network: each unit sees its own past alone."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bipolar.lab.cells.arguments import check_counts
from bipolar.lab.cells.protocol import Cell, State


class IndRNN(Cell):
    r"""A rectified layer with a vector for its recurrent weights.

    .. math:: h_t = \max(0, \text{BN}(W x_t + b) + u \odot h_{t-1}), \quad |u| \le 1

    With the bound, no unit amplifies its past, however many windows carry the state along. For windows that each begin
    at zero, ``steps`` makes it :math:`2^{1/T}`, at most twofold over T steps; a state that is carried would double in
    every window. A pass that finds a weight outside, after an update of the optimiser, puts it back first. Batch norm,
    where asked for, takes its statistics over time and batch, so in training an output depends on later inputs too.

    Reference: Li et al., `Independently Recurrent Neural Network (IndRNN): Building A Longer and Deeper RNN
    <https://arxiv.org/abs/1803.04831>`_, 2018. There, on the characters of Penn Treebank: six or more layers of 2,000
    units, batch norm, windows of 50. The paper has the bound :math:`2^{1/T}`; the released code for this text, which
    carries the state, has 1. That code keeps statistics of batch norm for each time step; we keep those over all. As
    there, u starts uniform from 0 to its bound, b at zero, and W uniform with a gain of :math:`\sqrt{2/5}`.

    Args:
        input_size: the width of the input
        hidden_size: the width of the layer
        steps: T, the length of windows that each begin at zero; None where the state is carried. Default: ``None``
        batch_norm: whether to have BN. Default: ``False``

    Examples::

        >>> layer = IndRNN(8, 16, batch_norm=True)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 16]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, steps: int | None = None, batch_norm: bool = False
    ) -> None:
        super().__init__(input_size, hidden_size)
        if steps is not None:
            check_counts(steps=steps)
        self.sizes = (hidden_size,)
        self.bound = 1.0 if steps is None else 2.0 ** (1 / steps)
        self.input = nn.Linear(input_size, hidden_size)
        self.recurrent = nn.Parameter(torch.empty(hidden_size).uniform_(0, self.bound))
        self.norm = nn.BatchNorm1d(hidden_size) if batch_norm else None
        nn.init.kaiming_uniform_(self.input.weight, a=2)
        nn.init.zeros_(self.input.bias)

    def prepare(self, x: Tensor) -> Tensor:
        product: Tensor = self.input(x)
        return product if self.norm is None else self.norm(product.flatten(0, 1)).view_as(product)

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        h = torch.relu(torch.addcmul(x, self.recurrent, state[0]))
        return h, (h,)

    def forward(
        self, x: Tensor, state: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            # Only where needed: a change in place would spoil the backward pass of an earlier window.
            if float(self.recurrent.abs().max()) > self.bound:
                self.recurrent.clamp_(-self.bound, self.bound)
        return super().forward(x, state, generator=generator)
