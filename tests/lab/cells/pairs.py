"""Two layers, for cells of which one alone cannot copy: a unit that sees its own past alone forgets smoothly."""

from torch import Tensor, nn

from bipolar.lab.cells.protocol import Cell


class Pair(nn.Module):
    """One cell above another, both from the beginning."""

    def __init__(self, first: Cell, second: Cell) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.input_size, self.hidden_size = first.input_size, second.hidden_size

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = self.second(self.first(x)[0])
        return found
