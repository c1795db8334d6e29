"""A recurrent stack cell by cell, for studies that reach every output or change how a skip is added."""

from collections.abc import Callable
from typing import TypeAlias

import torch.nn.functional as tF
from torch import Tensor

from bipolar._rnn import StackedRNN
from bipolar._rnn.stack_pass import LayerWeights

#: Adds a skip: from the field z of a layer and the scaled skip to the output for the layer above and the next state.
Join: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def unrolled(rnn: StackedRNN, weights: LayerWeights, input: Tensor, state: Tensor, join: Join) -> list[list[Tensor]]:
    """The output of each layer at each time step, ``[t][i]``, without dropout."""
    h, outputs = list(state.unbind(0)), []
    for x in input:
        block_input, column = x, []
        for i, (u, w, b) in enumerate(weights):
            if rnn.blocks.starts(i):
                block_input = x
            z = tF.linear(h[i], w) + tF.linear(x, u, b)
            if rnn.blocks.has_skip(i):
                x, h[i] = join(z, rnn.skip_scale * block_input)
            else:
                x = h[i] = rnn.activation(z)
            column.append(x)
        outputs.append(column)
    return outputs
