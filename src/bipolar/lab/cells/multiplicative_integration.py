"""Multiplicative integration: input and state meet in a product, in a tanh layer and in an LSTM."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bipolar.lab.cells.protocol import Cell, State, uniform_


class _Integration(nn.Module):
    """The general form, for one or more gates side by side."""

    def __init__(self, input_size: int, hidden_size: int, gates: int, alpha: float, beta1: float, beta2: float) -> None:
        super().__init__()
        width = gates * hidden_size
        self.input = nn.Parameter(torch.empty(width, input_size))
        self.recurrent = nn.Parameter(torch.empty(width, hidden_size))
        self.alpha = nn.Parameter(torch.full((width,), alpha))
        self.beta1 = nn.Parameter(torch.full((width,), beta1))
        self.beta2 = nn.Parameter(torch.full((width,), beta2))
        self.bias = nn.Parameter(torch.zeros(width))
        uniform_([self.input, self.recurrent], hidden_size)

    def prepare(self, x: Tensor) -> Tensor:
        """The form is linear in the product of the state: its slopes and its constants, side by side."""
        product = nn.functional.linear(x, self.input)
        return torch.cat((self.alpha * product + self.beta1, self.beta2 * product + self.bias), dim=-1)

    def forward(self, prepared: Tensor, h: Tensor) -> Tensor:
        slope, constant = prepared.chunk(2, dim=-1)
        return torch.addcmul(constant, slope, h @ self.recurrent.T)


class MIRNN(Cell):
    r"""A tanh layer with multiplicative integration, in its general form.

    .. math:: h_t = \tanh(\alpha \odot W x_t \odot U h_{t-1} + \beta_1 \odot U h_{t-1} + \beta_2 \odot W x_t + b)

    Reference: Wu et al., `On Multiplicative Integration with Recurrent Neural Networks
    <https://arxiv.org/abs/1606.06630>`_, 2016. There: 2,048 units on Penn Treebank and Text8, Adam; alpha, beta1, beta2
    and b start at 2, 0.5, 0.5 and 0. The weights start as torch's own cells do.

    Args:
        input_size: the width of the input
        hidden_size: the width of the layer
        alpha: the start of alpha. Default: 2
        beta1: the start of beta1, on the state's side. Default: 0.5
        beta2: the start of beta2, on the input's side. Default: 0.5

    Examples::

        >>> layer = MIRNN(8, 16)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 16]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, alpha: float = 2.0, beta1: float = 0.5, beta2: float = 0.5
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.sizes = (hidden_size,)
        self.integration = _Integration(input_size, hidden_size, 1, alpha, beta1, beta2)

    def prepare(self, x: Tensor) -> Tensor:
        return self.integration.prepare(x)

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        h = torch.tanh(self.integration(x, state[0]))
        return h, (h,)


class MILSTM(Cell):
    r"""An LSTM with multiplicative integration in each gate.

    .. math::
        a^k_t &= \alpha_k \odot W_k x_t \odot U_k h_{t-1} + \beta_{1k} \odot U_k h_{t-1} + \beta_{2k} \odot W_k x_t
            + b_k \quad \text{for } k \in \{i, f, z, o\} \\
        c_t &= \sigma(a^f_t) \odot c_{t-1} + \sigma(a^i_t) \odot \tanh(a^z_t) \\
        h_t &= \sigma(a^o_t) \odot \tanh(c_t)

    Reference: Wu et al., `On Multiplicative Integration with Recurrent Neural Networks
    <https://arxiv.org/abs/1606.06630>`_, 2016. There: 2,048 units on Text8, Adam; alpha, beta1, beta2 and b start at 1,
    0.5, 0.5 and 0, the bias of the forget gate too. The weights start as torch's own cells do.

    Args:
        input_size: the width of the input
        hidden_size: the width of the layer
        alpha: the start of alpha. Default: 1
        beta1: the start of beta1, on the state's side. Default: 0.5
        beta2: the start of beta2, on the input's side. Default: 0.5

    Examples::

        >>> layer = MILSTM(8, 16)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 32]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, alpha: float = 1.0, beta1: float = 0.5, beta2: float = 0.5
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.sizes = (hidden_size, hidden_size)
        self.integration = _Integration(input_size, hidden_size, 4, alpha, beta1, beta2)

    def prepare(self, x: Tensor) -> Tensor:
        return self.integration.prepare(x)

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        h, c = state
        i, f, z, o = self.integration(x, h).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)
