"""One pass of a stack over a sequence, in the form that every backend takes."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from torch import Tensor

from bipolar._rnn.blocks import Blocks
from bipolar._rnn.noise import Noise

#: For each layer U (from the layer below), W (from the time step before) and b.
LayerWeights: TypeAlias = Sequence[tuple[Tensor, Tensor, Tensor | None]]


class StackPass(NamedTuple):
    """Everything that a pass depends on, but the activation."""

    #: (time, batch, input_size)
    input: Tensor
    #: (num_layers, batch, hidden_size)
    state: Tensor
    weights: LayerWeights
    blocks: Blocks
    #: the paper's alpha
    skip_scale: float
    noise: Noise
    #: whether all states are set to zero before a time step, (time, batch); None for never
    reset: Tensor | None = None
    #: the last time step of each sequence, (batch); None for that of the input
    ends: Tensor | None = None

    def within(self, low: int, high: int, input: Tensor) -> "StackPass":
        """The pass of the layers from ``low`` up to ``high``, whole blocks, on the output of the layers below."""
        blocks = self.blocks
        return StackPass(
            input,
            self.state[low:high],
            self.weights[low:high],
            Blocks(high - low, blocks.every, same_width=low > 0 or blocks.same_width),
            self.skip_scale,
            self.noise.within(low, high, blocks.every or 1),
            self.reset,
            self.ends,
        )
