"""Cells on top of each other, with dropout between them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bipolar.lab.cells.arguments import check_rates
from bipolar.lab.cells.protocol import Cell, Dice


class Layers(nn.Module):
    r"""Layers of cells, each reading the outputs of the one below.

    .. math:: y^{(l)} = \text{cell}_l(y^{(l-1)} \circ m^{(l-1)}), \qquad y^{(0)} = x

    with masks m of dropout, drawn for each value, on the output of every layer: the way of Zaremba et al., `Recurrent
    Neural Network Regularization <https://arxiv.org/abs/1409.2329>`_, 2014. The input is not dropped.

    Args:
        make: makes a layer from the widths of its input and its output
        input_size: the width of the input
        hidden_size: the width of each layer
        num_layers: the number of layers
        dropout: the rate of dropout. Default: 0

    Shape:
        - input: (time, batch, input_size)
        - state: (1, batch, the widths of the states of all layers together); None for the beginning
        - output: (time, batch, hidden_size)
    """

    def __init__(
        self,
        make: Callable[[int, int], Cell],
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        for name, count in (("hidden_size", hidden_size), ("num_layers", num_layers)):
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        check_rates(dropout=dropout)
        self.dropout = dropout
        widths = [input_size, *[hidden_size] * (num_layers - 1)]
        layers = [make(width, hidden_size) for width in widths]
        self.layers = nn.ModuleList(layers)
        #: the widths of the states of the layers
        self.sizes = [sum(layer.sizes) for layer in layers]

    def forward(
        self, x: Tensor, state: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        before = [None] * len(self.sizes) if state is None else state.split(self.sizes, dim=-1)
        after = []
        for layer, own in zip(self.layers, before, strict=True):
            x, last = layer(x, own, generator=generator)
            after.append(last)
            if self.training and self.dropout:
                x = x * Dice(generator, x).dropped_out(self.dropout, *x.shape)
        return x, torch.cat(after, dim=-1)
