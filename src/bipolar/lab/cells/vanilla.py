"""Vanilla recurrent layers: tanh, ReLU, and ReLU started at the identity."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from bipolar.lab.cells.protocol import Cell, State, uniform_

Nonlinearity: TypeAlias = Literal["tanh", "relu"]
FUNCTIONS: dict[Nonlinearity, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}


class Vanilla(Cell):
    r"""A layer without gates.

    .. math:: h_t = f(W x_t + U h_{t-1} + b)

    Args:
        input_size: the width of the input
        hidden_size: the width of the layer
        nonlinearity: f, ``"tanh"`` or ``"relu"``. Default: ``"tanh"``
        identity: start U as the identity and b at zero, as Le et al., `A Simple Way to Initialize Recurrent Networks of
            Rectified Linear Units <https://arxiv.org/abs/1504.00941>`_, 2015 (IRNN); W has a standard deviation of
            0.001 there. Default: ``False``

    Examples::

        >>> layer = Vanilla(8, 16, "relu", identity=True)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 16]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, nonlinearity: Nonlinearity = "tanh", *, identity: bool = False
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.sizes = (hidden_size,)
        self.function = FUNCTIONS[nonlinearity]
        self.input = nn.Linear(input_size, hidden_size)
        self.recurrent = nn.Parameter(torch.empty(hidden_size, hidden_size))
        if identity:
            nn.init.normal_(self.input.weight, std=0.001)
            nn.init.zeros_(self.input.bias)
            self.recurrent = nn.Parameter(torch.eye(hidden_size))
        else:
            uniform_([*self.input.parameters(), self.recurrent], hidden_size)

    def prepare(self, x: Tensor) -> Tensor:
        prepared: Tensor = self.input(x)
        return prepared

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        h = self.function(torch.addmm(x, state[0], self.recurrent.T))
        return h, (h,)
