"""Fronts: the diagonals of a stack over time, whose cells can be computed together."""

from typing import NamedTuple

from torch import Tensor


def layers_at(d: int, layers: int, steps: int) -> range:
    """The layers of the front d, which holds layer i at time d - i."""
    return range(max(0, d - steps + 1), min(layers, d + 1))


class Front(NamedTuple):
    """The cells of the layers from ``low`` up to, not including, ``high``, and the layout of their tensor.

    The tensor covers the layers from ``start`` up to, not including, ``stop``. Beside the cells it has one place at the
    lower end for the stack's input at the next time step, as the value of a layer -1, and one at the upper end for the
    initial state of the next layer, as long as there are such.
    """

    d: int
    low: int
    high: int
    start: int
    stop: int
    #: the lowest layer here that ends a block with a skip; ``high`` if there is none
    skip: int
    #: the layers of dropped blocks
    dropped: list[int]

    def of(self, tensor: Tensor, low: int, high: int, step: int = 1) -> Tensor:
        """The part of the front's tensor that belongs to these layers."""
        return tensor[low - self.start : high - self.start : step]

    def cells(self, tensor: Tensor) -> Tensor:
        """The part of the front's tensor that belongs to its cells."""
        return self.of(tensor, self.low, self.high)
