"""The activations whose derivative follows from their output: those that the fast path can take."""

from typing import Any

import torch
from torch import nn

from bipolar import activations, kernels
from bipolar.functional import SELU_ALPHA, SELU_SCALE

aten = torch.ops.aten


def tanh() -> kernels.Kernel:
    return kernels.Kernel(
        forward=torch.tanh,
        forward_=torch.tanh_,
        backward=lambda grad, u, _: aten.tanh_backward.default(grad, u),
        backward_=lambda grad, u, _: aten.tanh_backward.grad_input(grad, u, grad_input=u),
        output_suffices=True,
    )


def kernel_of(activation: Any) -> kernels.Kernel | None:
    """The plain kernel of an activation module, plain or bipolar; None if its output does not tell the derivative."""
    kernel: kernels.Kernel | None = None
    match activation:
        case nn.ReLU() | activations.BReLU():
            kernel = kernels.relu()
        case nn.ELU() | activations.BELU():
            kernel = kernels.elu(activation.alpha)
        case nn.SELU() | activations.BSELU():
            kernel = kernels.elu(SELU_ALPHA, SELU_SCALE)
        case nn.CELU() | activations.BCELU():
            kernel = kernels.elu(activation.alpha, 1.0, 1.0 / activation.alpha)
        case nn.LeakyReLU() | activations.BLeakyReLU():
            kernel = kernels.leaky_relu(activation.negative_slope)
        case nn.Tanh():
            kernel = tanh()
    return kernel if kernel is not None and kernel.output_suffices else None
