"""The multiplicative LSTM: the input chooses the transition of the state."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bipolar.lab.cells.protocol import Cell, State, uniform_


class MLSTM(Cell):
    r"""An LSTM whose gates see a product of input and state in place of the state.

    .. math::
        m_t &= (W_{mx} x_t) \odot (W_{mh} h_{t-1}) \\
        i_t, f_t, o_t &= \sigma(W_{kx} x_t + W_{km} m_t + b_k) \quad \text{for } k \in \{i, f, o\} \\
        c_t &= f_t \odot c_{t-1} + i_t \odot (W_{ux} x_t + W_{um} m_t + b_u) \\
        h_t &= \tanh(o_t \odot c_t)

    Reference: Krause et al., `Multiplicative LSTM for sequence modelling <https://arxiv.org/abs/1609.07959>`_, 2016.
    There: 1,900 units on Text8 and enwik8 (20 million parameters), m as wide as the state. The candidate without a tanh
    and the output gate within the last one are those of the code released for these experiments; another release of the
    authors' has an LSTM's. It also has a bias within the last tanh, which we leave out. The start is that of torch's
    own cells.

    Args:
        input_size: the width of the input
        hidden_size: the width of the layer
        forget_bias: the start of the bias of the forget gate; others start at zero. Default: 1

    Examples::

        >>> layer = MLSTM(8, 16)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 32]))
    """

    def __init__(self, input_size: int, hidden_size: int, *, forget_bias: float = 1.0) -> None:
        super().__init__(input_size, hidden_size)
        self.sizes = (hidden_size, hidden_size)
        # The input's part of m first, then that of the gates i, f, u and o.
        self.input = nn.Parameter(torch.empty(5 * hidden_size, input_size))
        self.bias = nn.Parameter(torch.zeros(4 * hidden_size))
        self.multiplier = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.recurrent = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        uniform_([self.input, self.multiplier, self.recurrent], hidden_size)
        nn.init.constant_(self.bias[hidden_size : 2 * hidden_size], forget_bias)

    def prepare(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.input, nn.functional.pad(self.bias, (self.hidden_size, 0)))

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        h, c = state
        m = x[:, : self.hidden_size] * (h @ self.multiplier.T)
        i, f, u, o = torch.addmm(x[:, self.hidden_size :], m, self.recurrent.T).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * u
        h = torch.tanh(torch.sigmoid(o) * c)
        return h, (h, c)
