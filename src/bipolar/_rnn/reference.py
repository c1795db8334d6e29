"""The stack cell by cell, in plain autograd: the mathematics as the paper has it, and what the tests trust."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bipolar._rnn.blocks import Blocks
from bipolar._rnn.noise import Noise


def run(
    input: Tensor,
    state: Tensor,
    weights: Sequence[tuple[Tensor, Tensor, Tensor | None]],
    blocks: Blocks,
    skip_scale: float,
    noise: Noise,
    *,
    f: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """The outputs (time, batch, hidden_size) and the last states (num_layers, batch, hidden_size).

    Args:
        input: (time, batch, input_size)
        state: (num_layers, batch, hidden_size)
        weights: for each layer U (from below), W (from the step before) and b
        blocks: which layers form a block
        skip_scale: the paper's alpha
        noise: the masks of this pass
        f: the activation, on (batch, hidden_size)
    """
    h = list(state.unbind(0))
    outputs = []
    for t in range(input.size(0)):
        x = block_input = input[t]
        for i, (u, w, b) in enumerate(weights):
            if blocks.starts(i):
                block_input = x
            if noise.dropped is not None and blocks.droppable(i) and noise.dropped[t, blocks.of(i)]:
                continue  # the identity: x passes by, and h stays
            past = h[i] if noise.recurrent is None else h[i] * noise.recurrent[i]
            h[i] = f(torch.nn.functional.linear(past, w) + torch.nn.functional.linear(x, u, b))
            if blocks.has_skip(i):
                h[i] = h[i] + skip_scale * block_input
            x = h[i] if noise.output is None else h[i] * noise.output_at(i, t, len(weights), len(input)) * noise.scale
        outputs.append(x)
    if noise.dropped is not None:  # a layer that was always dropped has a gradient, too: zero
        outputs[-1] = outputs[-1] + 0 * sum(p.sum() for layer in weights for p in layer if p is not None)
    return torch.stack(outputs), torch.stack(h)
