"""The diagonals of a stack over time: the cells that can be computed together."""

from typing import NamedTuple

from torch import Tensor


def layers_at(d: int, layers: int, steps: int) -> range:
    """The layers of the front d, which holds layer i at time d - i."""
    return range(max(0, d - steps + 1), min(layers, d + 1))


class Front(NamedTuple):
    """The cells of the layers from ``low`` up to, not including, ``high``, and the tensor that holds their values.

    The tensor begins with layer ``start`` and ends before layer ``stop``. It has one place more than cells at the lower
    end for the stack's input of the coming step, as the value of a layer -1, and one at the upper end for the initial
    state of the coming layer, as long as there are such.
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
        """What the front's tensor holds for these layers."""
        return tensor[low - self.start : high - self.start : step]

    def cells(self, tensor: Tensor) -> Tensor:
        return self.of(tensor, self.low, self.high)
