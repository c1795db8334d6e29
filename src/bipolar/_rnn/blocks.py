"""Which layers of a stack form a block with a skip connection around it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Blocks:
    """Blocks of ``every`` layers, from the bottom; an incomplete one on top has no skip and is never dropped.

    A block whose input is not as wide as its output has none either: that of the first block, where the input of the
    stack is not as wide as its layers.
    """

    num_layers: int
    every: int | None
    same_width: bool

    @property
    def count(self) -> int:
        """The number of complete blocks."""
        return self.num_layers // self.every if self.every else 0

    def of(self, layer: int) -> int:
        return layer // self.every if self.every else 0

    def starts(self, layer: int) -> bool:
        return self.every is not None and layer % self.every == 0

    def droppable(self, layer: int) -> bool:
        """Whether the layer is in a block that the identity can stand in for."""
        return self.every is not None and self.of(layer) < self.count and (self.same_width or layer >= self.every)

    def has_skip(self, layer: int) -> bool:
        """Whether the output of the block's input is added to that of this layer, the last of its block."""
        return self.every is not None and (layer + 1) % self.every == 0 and self.droppable(layer)
