"""The stack cell by cell, where every state can be reached and the skip be added in other ways than the right one."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, cast

import torch
import torch.nn.functional as tF
from torch import Tensor

from bipolar._rnn import StackedRNN
from bipolar._rnn.stack_pass import LayerWeights

#: From z and the scaled skip to what goes up and what goes on in time.
Join: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Gradient: TypeAlias = Literal["right", "after skip", "not through time"]


def outputs_of(rnn: StackedRNN, weights: LayerWeights, input: Tensor, state: Tensor, join: Join) -> list[list[Tensor]]:
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


class _AfterSkip(torch.autograd.Function):
    """ELU plus skip, with the derivative of ELU taken from the sum."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, skip: Tensor) -> Tensor:
        output = tF.elu(z) + skip
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        (output,) = ctx.saved_tensors
        return torch.ops.aten.elu_backward(grad, 1.0, 1.0, 1.0, True, output), grad


class MistakenRNN(StackedRNN):
    """A stack whose gradient is wrong in one of two ways, as far as can be read off the code released with the paper.

    - ``"after skip"``: the skip is added in place into the stored output of ELU, from which its derivative is taken.
    - ``"not through time"``: what comes back through time does not enter the skip.
    """

    mistake: Gradient = "right"

    def _run(self, x: Tensor, state: Tensor, weights: LayerWeights, noise: Any) -> tuple[Tensor, Tensor]:
        def join(z: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
            if self.mistake == "after skip":
                h = cast(Tensor, cast(Any, _AfterSkip).apply(z, skip))
                return h, h
            a = self.activation(z)
            return a + skip, a + skip.detach()

        outputs = outputs_of(self, weights, x, state, join)
        # the states are the values that went on in time, which are those that went up
        return torch.stack([column[-1] for column in outputs]), torch.stack(outputs[-1])


def mistaken(rnn: StackedRNN, mistake: Gradient) -> StackedRNN:
    """The same stack with a mistake in its gradient."""
    if mistake == "after skip" and rnn.nonlinearity != "elu":
        raise ValueError("gradient: 'after skip' is about ELU; the other activations keep what they need elsewhere")
    if rnn.dropout or rnn.recurrent_dropout or rnn.block_dropout:
        raise ValueError("gradient: only without dropout")
    rnn.__class__ = MistakenRNN
    cast(MistakenRNN, rnn).mistake = mistake
    return rnn


def rows(values: Sequence[Tensor], layers: int, steps: int) -> list[list[float]]:
    """Norms of gradients, by layer and time step, from tensors in the order of :func:`outputs_of`."""
    return [[values[t * layers + i].norm().item() for t in range(steps)] for i in range(layers)]
