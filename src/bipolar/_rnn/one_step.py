"""One time step of a stack without autograd or dropout, for generation."""

from collections.abc import Callable

import torch
from torch import Tensor

from bipolar._activations.recognition import kernel_of
from bipolar._rnn.blocks import Blocks
from bipolar._rnn.nonlinearity import sign_of
from bipolar._rnn.stack_pass import LayerWeights


def one_step(
    x: Tensor,
    h: Tensor,
    weights: LayerWeights,
    blocks: Blocks,
    skip_scale: float,
    activation: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """The output (batch, hidden_size) and the new states, for x of shape (batch, input_size)."""
    kernel, sign, f = kernel_of(activation), sign_of(activation, h.size(2), x), activation
    if kernel is not None:
        f = kernel.forward_ if sign is None else lambda z: kernel.forward_(z.mul_(sign)).mul_(sign)
    block_input, past, states = x, h.unbind(0), []
    for i, (u, w, b) in enumerate(weights):
        if blocks.starts(i):
            block_input = x
        if len(x) == 1:  # matrix times vector: half the time
            z = torch.mv(u, x[0]) if b is None else torch.addmv(b, u, x[0])
            x = f(z.addmv_(w, past[i][0]).unsqueeze(0))
        else:
            x = f(torch.nn.functional.linear(x, u, b).addmm_(past[i], w.mT))
        if blocks.has_skip(i):
            x = x.add(block_input, alpha=skip_scale)
        states.append(x)
    return x, torch.stack(states)
