"""Blocks of layers with a skip connection around them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Blocks:
    """Blocks of ``every`` layers, from the bottom; an incomplete one on top has no skip and is never dropped.

    A skip needs an input as wide as the output. Only the first block can lack that: where the input of the stack is not
    as wide as its layers.
    """

    num_layers: int
    every: int | None
    same_width: bool

    @property
    def count(self) -> int:
        """The number of complete blocks."""
        return self.num_layers // self.every if self.every else 0

    def of(self, layer: int) -> int:
        """The index of the layer's block."""
        return layer // self.every if self.every else 0

    def starts(self, layer: int) -> bool:
        """Whether the layer is the first of its block."""
        return self.every is not None and layer % self.every == 0

    def droppable(self, layer: int) -> bool:
        """Whether the identity can replace the layer's block."""
        return self.every is not None and self.of(layer) < self.count and (self.same_width or layer >= self.every)

    def has_skip(self, layer: int) -> bool:
        """Whether the input of the block is added to the output of this layer, the last of the block."""
        return self.every is not None and (layer + 1) % self.every == 0 and self.droppable(layer)
