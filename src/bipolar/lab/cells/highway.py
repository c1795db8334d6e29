"""The recurrent highway network: several highway layers within each step."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bipolar.lab.cells.arguments import check_counts, check_rates
from bipolar.lab.cells.protocol import Cell, Dice, Drawn, State, between


class Highway(Cell):
    r"""A layer whose transition is a highway network with coupled gates, :math:`c = 1 - t`.

    .. math::
        h^l_t &= \tanh(W_H (d_x \odot x_t) [l = 1] + R^l_H (d_s \odot s^{l-1}_t) + b^l_H) \\
        t^l_t &= \sigma(W_T (d_x \odot x_t) [l = 1] + R^l_T (d_s \odot s^{l-1}_t) + b^l_T) \\
        s^l_t &= h^l_t \odot t^l_t + s^{l-1}_t \odot (1 - t^l_t), \quad s^0_t = s^L_{t-1}, \quad y_t = s^L_t

    The masks of dropout are drawn once a sequence; they are the same for both products and at all depths.

    Reference: Zilly et al., `Recurrent Highway Networks <https://arxiv.org/abs/1607.03474>`_, 2016. There, on Text8 and
    enwik8: depth 10, 1,500 units, 46 million parameters with embedding and softmax. The released code has a transform
    bias of -4 for them, rates of 0.1 on the state, 0.1 on characters and 0.4 on the features of their trained
    embedding, which we have not, and starts all else uniform within 0.04. A mask on one-hot characters drops
    characters.

    Args:
        input_size: the width of the input
        hidden_size: the width of the layer
        depth: L, the recurrence depth. Default: 10
        transform_bias: the start of the biases of the transform gates. Default: -4
        init_scale: all else starts uniform within it. Default: 0.04
        input_dropout: the rate of dropout of the input. Default: 0
        hidden_dropout: the rate of dropout of the state before each product. Default: 0

    Examples::

        >>> layer = Highway(8, 16, depth=3, hidden_dropout=0.1)
        >>> output, state = layer(torch.randn(5, 2, 8))
        >>> output.shape, state.shape
        (torch.Size([5, 2, 16]), torch.Size([1, 2, 16]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        depth: int = 10,
        transform_bias: float = -4.0,
        init_scale: float = 0.04,
        input_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        check_counts(depth=depth)
        check_rates(input_dropout=input_dropout, hidden_dropout=hidden_dropout)
        self.sizes = (hidden_size,)
        self.input_dropout, self.hidden_dropout = input_dropout, hidden_dropout
        # In each, H over T.
        self.input = nn.Parameter(torch.empty(2 * hidden_size, input_size))
        self.recurrent = nn.ParameterList(torch.empty(2 * hidden_size, hidden_size) for _ in range(depth))
        self.biases = nn.ParameterList(torch.empty(2 * hidden_size) for _ in range(depth))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -init_scale, init_scale)
        for bias in self.biases:
            nn.init.constant_(bias[hidden_size:], transform_bias)

    def prepare(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.input, self.biases[0])

    def draw(self, steps: int, batch: int, dice: Dice) -> Drawn:
        return Drawn(once=self.dropped(dice, self.hidden_dropout, batch, self.hidden_size))

    def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
        s = state[0]
        for level, (weight, bias) in enumerate(zip(self.recurrent, self.biases, strict=True)):
            seen = s * once[0] if once else s
            h, t = torch.addmm(bias if level else x, seen, weight.T).chunk(2, dim=-1)
            s = between(s, torch.tanh(h), torch.sigmoid(t))
        return s, (s,)

    def forward(
        self, x: Tensor, state: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        if self.training and self.input_dropout:
            # Before prepare, which takes the products of all steps at once.
            x = x * Dice(generator, x).dropped_out(self.input_dropout, x.shape[1], self.input_size)
        return super().forward(x, state, generator=generator)
