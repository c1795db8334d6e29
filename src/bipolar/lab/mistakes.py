"""Recurrent stacks with a mistake in their gradient, for the study ``aliasing``."""

from typing import Any, cast

import torch
import torch.nn.functional as tF
from torch import Tensor

from bipolar._rnn import StackedRNN
from bipolar._rnn.stack_pass import StackPass
from bipolar.lab.training.text.config import Gradient
from bipolar.lab.unrolled import unrolled


class _AfterSkip(torch.autograd.Function):
    """ELU plus skip, where the derivative of ELU is taken from the sum."""

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
    """A stack with a wrong gradient, as a reading of the code released with the paper suggests it.

    - ``"after skip"``: the derivative of ELU is taken from its stored output, to which the skip was added in place.
    - ``"not through time"``: the gradient that comes back through time does not enter the skip.
    """

    mistake: Gradient = "right"

    def _run(self, task: StackPass) -> tuple[Tensor, Tensor]:
        if task.reset is not None:
            raise ValueError("gradient: only for sequences of one length, without reset")

        def join(z: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
            if self.mistake == "after skip":
                h = cast(Tensor, cast(Any, _AfterSkip).apply(z, skip))
                return h, h
            a = self.activation(z)
            return a + skip, a + skip.detach()

        outputs = unrolled(self, task.weights, task.input, task.state, join)
        # join returns equal values for output and state, so the last outputs are the last states
        return torch.stack([column[-1] for column in outputs]), torch.stack(outputs[-1])


def mistaken(rnn: StackedRNN, mistake: Gradient) -> StackedRNN:
    """The same stack, changed in place, with a mistake in its gradient."""
    if mistake == "after skip" and rnn.nonlinearity != "elu":
        raise ValueError("gradient: 'after skip' is about ELU; the other activations keep what they need elsewhere")
    if rnn.dropout or rnn.recurrent_dropout or rnn.block_dropout:
        raise ValueError("gradient: only without dropout")
    rnn.__class__ = MistakenRNN
    cast(MistakenRNN, rnn).mistake = mistake
    return rnn
