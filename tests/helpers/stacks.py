"""Recurrent stacks: the activations of the fast backends, noise, and everything that a pass computes."""

import torch
from torch import Tensor

import bipolar

FAST = ["relu", "brelu", "elu", "belu", "leaky_relu", "bleaky_relu", "selu", "bselu", "celu", "bcelu", "tanh"]
NOISE = {"dropout": 0.3, "recurrent_dropout": 0.25, "block_dropout": 0.4}
#: at which dropped values are drawn by the gaps between them
RARE = {"dropout": 0.1, "recurrent_dropout": 0.05, "block_dropout": 0.1}


def waving(tensor: Tensor) -> Tensor:
    """A sum with another factor for every value."""
    return (tensor * torch.arange(tensor.numel(), dtype=tensor.dtype).cos().view_as(tensor)).sum()


def results(rnn: bipolar.StackedRNN, x: Tensor, state: Tensor | None, weights: tuple[float, float]) -> list[Tensor]:
    """Output, state, and the gradients of a loss on both, by every input and parameter that needs one."""
    output, last = rnn(x, state, generator=torch.Generator().manual_seed(1))
    loss = weights[0] * waving(output) + weights[1] * waving(last)
    inputs = [x, *([] if state is None else [state]), *(p for p in rnn.parameters() if p.requires_grad)]
    gradients = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    return [output, last, *gradients]


def gradients(rnn: bipolar.StackedRNN) -> list[Tensor]:
    """The gradients that a backward pass left."""
    return [p.grad for p in rnn.parameters() if p.grad is not None]
