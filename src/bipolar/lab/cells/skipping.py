"""The Skipping-RNN: a rectified layer that also sees its state of some steps ago."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bipolar.lab.cells.protocol import Cell, State, uniform_


class SkippingRNN(Cell):
    r"""A rectified layer with a second recurrent connection, which skips steps.

    .. math:: h_t = \max(0, W x_t + U h_{t-1} + V h_{t-k} + b)

    Reference: Pachitariu and Sahani, `Regularization and nonlinearities for neural language models: when are they
    needed? <https://arxiv.org/abs/1301.5650>`_, 2013. Known: its recurrent networks have rectified units and learn by
    gradient descent; later papers list 1.48 BPC on Text8 from it under the name of skipping RNN. We did not find the
    wiring. The second connection, its length k = 2, and the start (U and V each at half of the
    variance of torch's own cells, so that both paths together have that of one) are our choice.

    Args:
        input_size: the width of the input
        hidden_size: the width of the layer
        skip: k, at least 2. Default: 2

    Examples::

        >>> layer = SkippingRNN(8, 16, skip=3)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 48]))
    """

    def __init__(self, input_size: int, hidden_size: int, *, skip: int = 2) -> None:
        super().__init__(input_size, hidden_size)
        if skip < 2:
            raise ValueError(f"skip: expected a number of steps of at least 2, got {skip}")
        self.skip = skip
        self.sizes = (hidden_size,) * skip  # the last state first
        self.input = nn.Linear(input_size, hidden_size)
        self.recurrent = nn.Parameter(torch.empty(hidden_size, 2 * hidden_size))  # U beside V
        uniform_(list(self.input.parameters()), hidden_size)
        uniform_([self.recurrent], 2 * hidden_size)

    def prepare(self, x: Tensor) -> Tensor:
        prepared: Tensor = self.input(x)
        return prepared

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        h = torch.relu(torch.addmm(x, torch.cat((state[0], state[-1]), dim=-1), self.recurrent.T))
        return h, (h, *state[:-1])
