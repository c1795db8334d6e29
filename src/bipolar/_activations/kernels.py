r"""Kernels of activations, and S f(S x) at the cost of f: one new tensor in each direction, one kept for backward.

The plain formula ``sign * f(sign * x)`` allocates three tensors on the way forward and three on the way back, and for
large inputs the allocations cost more than the arithmetic. Here the signs are flipped in place, in the tensor that is
needed anyway. Everything is built from torch's own kernels, so it runs on every device and dtype that torch does, and
agrees with torch at infinities and kinks.

The backward pass keeps the same tensor as torch's own activation: the output of a ReLU and of an in-place call, else
the input. So the output may be changed in place wherever that of the plain activation may.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from bipolar._activations.patterns import Pattern, flipped, kept

aten = torch.ops.aten


class Kernel(NamedTuple):
    """A plain activation f by torch's own kernels; those with an underscore overwrite u."""

    #: u -> f(u)
    forward: Callable[[Tensor], Tensor]
    forward_: Callable[[Tensor], Tensor]
    #: (grad, u, from_output) -> grad * f', where u is f's output if ``from_output`` and its input otherwise
    backward: Callable[[Tensor, Tensor, bool], Tensor]
    backward_: Callable[[Tensor, Tensor, bool], Tensor]
    #: whether f' can be told from f's output
    output_suffices: bool


def relu() -> Kernel:
    return Kernel(
        forward=torch.relu,
        forward_=torch.relu_,
        backward=lambda grad, u, _: aten.threshold_backward.default(grad, u, 0),
        backward_=lambda grad, u, _: aten.threshold_backward.grad_input(grad, u, 0, grad_input=u),
        output_suffices=True,
    )


def leaky_relu(slope: float) -> Kernel:
    backward, backward_ = aten.leaky_relu_backward.default, aten.leaky_relu_backward.grad_input
    return Kernel(
        forward=lambda u: aten.leaky_relu.default(u, slope),
        forward_=lambda u: aten.leaky_relu_.default(u, slope),
        backward=lambda grad, u, from_output: backward(grad, u, slope, from_output),
        backward_=lambda grad, u, from_output: backward_(grad, u, slope, from_output, grad_input=u),
        output_suffices=slope >= 0,
    )


def elu(alpha: float, scale: float = 1.0, input_scale: float = 1.0) -> Kernel:
    """scale * (x if x > 0 else alpha * (exp(input_scale * x) - 1)): ELU, SELU and CELU in one, as in torch."""
    shape = (alpha, scale, input_scale)
    backward, backward_ = aten.elu_backward.default, aten.elu_backward.grad_input
    return Kernel(
        forward=lambda u: aten.elu.default(u, *shape),
        forward_=lambda u: aten.elu_.default(u, *shape),
        backward=lambda grad, u, from_output: backward(grad, *shape, from_output, u),
        backward_=lambda grad, u, from_output: backward_(grad, *shape, from_output, u, grad_input=u),
        output_suffices=alpha >= 0 and input_scale > 0,
    )


#: With fewer elements, six operations take longer to launch than one takes to run.
FEW = 2**12


def fast_elu(alpha: float, scale: float = 1.0, input_scale: float = 1.0) -> Kernel:
    """As :func:`elu`, but with a ``forward_`` twice as fast on a CPU: exp2 is faster than expm1.

    The result differs from torch's ELU by a rounding error relative to alpha, not to the result: for an alpha of 1 by
    less than 2e-7.
    """
    kernel = elu(alpha, scale, input_scale)
    if alpha * scale > 2:
        return kernel

    def forward_(u: Tensor) -> Tensor:
        if u.device.type != "cpu" or u.dtype not in (torch.float32, torch.float64) or u.numel() < FEW:
            return kernel.forward_(u)
        negative = torch.clamp_max(u, 0).mul_(input_scale * math.log2(math.e)).exp2_().sub_(1)
        u.clamp_min_(0)
        if scale != 1:
            u.mul_(scale)
        return u.add_(negative, alpha=alpha * scale)

    return kernel._replace(forward_=forward_)


def tanh() -> Kernel:
    return Kernel(
        forward=torch.tanh,
        forward_=torch.tanh_,
        backward=lambda grad, u, _: aten.tanh_backward.default(grad, u),
        backward_=lambda grad, u, _: aten.tanh_backward.grad_input(grad, u, grad_input=u),
        output_suffices=True,
    )


def gelu(approximate: str) -> Kernel:
    backward, backward_ = aten.gelu_backward.default, aten.gelu_backward.grad_input
    return Kernel(
        forward=lambda u: aten.gelu.default(u, approximate=approximate),
        forward_=lambda u: aten.gelu_.default(u, approximate=approximate),
        backward=lambda grad, u, _: backward(grad, u, approximate=approximate),
        backward_=lambda grad, u, _: backward_(grad, u, approximate=approximate, grad_input=u),
        output_suffices=False,
    )


def silu() -> Kernel:
    def backward(grad: Tensor, u: Tensor, _: bool) -> Tensor:  # torch has no derivative of its own silu_backward
        sigmoid = torch.sigmoid(u)
        return grad * sigmoid * (1 + u * (1 - sigmoid))

    return Kernel(
        forward=aten.silu.default,
        forward_=aten.silu_.default,
        backward=backward,
        backward_=lambda grad, u, _: aten.silu_backward.grad_input(grad, u, grad_input=u),
        output_suffices=False,
    )


#: Below this many elements the plain formula is faster: its allocations are cheap, and it needs less Python.
SMALL = 2**16


def is_plain(tensor: Tensor) -> bool:
    """Whether the functions below can work on ``tensor``, and are faster than the plain formula.

    They are in eager mode on large tensors, without a tensor subclass, forward-mode differentiation, or a transform of
    ``torch.func`` at work, on this tensor or another. ``torch.compile`` fuses the formula by itself;
    for a bipolar ReLU see :func:`traced_brelu`.
    """
    return not (
        torch.compiler.is_compiling()
        or tensor.numel() < SMALL
        or type(tensor) not in (Tensor, Parameter)
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None
    )


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    """``function.apply``, typed."""
    return cast(Tensor, function.apply(*arguments))


class BipolarFunction(torch.autograd.Function):
    """f_B(x) = S f(S x) for any :class:`Kernel`."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, sign: Tensor, kernel: Kernel, inplace: bool) -> Tensor:
        ctx.kernel, ctx.from_output = kernel, inplace
        if inplace:
            ctx.mark_dirty(input)
        output = input.mul_(sign) if inplace else input * sign
        kernel.forward_(output).mul_(sign)
        ctx.save_for_backward(output if inplace else input, sign)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        tensor, sign = ctx.saved_tensors
        u = tensor * sign
        if not torch.is_grad_enabled():
            try:
                return ctx.kernel.backward_(grad, u, ctx.from_output), None, None, None
            except RuntimeError:  # a batch of gradients (is_grads_batched): vmap does not know out=
                pass
        return ctx.kernel.backward(grad, u, ctx.from_output), None, None, None


class BReLUFunction(torch.autograd.Function):
    """Bipolar ReLU: max(x, 0) for kept and min(x, 0) for flipped channels, one pass in each direction."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, dim: int, pattern: Pattern, inplace: bool) -> Tensor:
        if inplace:
            ctx.mark_dirty(input)
        channels = input.size(dim)
        up, down = kept(channels, pattern), flipped(channels, pattern)
        if input.stride(dim) == 1:  # neighbours in memory: slices would be strided, and slow
            upper = input.new_zeros(channels, *[1] * (input.ndim - 1 - dim))
            lower = torch.zeros_like(upper)
            upper[up].fill_(math.inf)
            lower[down].fill_(-math.inf)
            output = input.clamp_(lower, upper) if inplace else torch.clamp(input, lower, upper)
        else:
            output = input if inplace else torch.empty_like(input)
            before = (slice(None),) * dim
            keep, flip = (*before, up), (*before, down)
            torch.clamp_min(input[keep], 0, out=output[keep])
            torch.clamp_max(input[flip], 0, out=output[flip])
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (output,) = ctx.saved_tensors
        # The derivative of hardshrink with a threshold of 0: the gradient where the output is not 0. (Where the
        # output is NaN this is 0 on a CPU, while relu's own kernel gives the gradient; the loss is NaN all the same.)
        return aten.hardshrink_backward.default(grad, output, 0.0), None, None, None


def is_traced(tensor: Tensor) -> bool:
    """Whether :func:`traced_brelu` works on ``tensor``: in ``torch.compile``, without a transform of ``torch.func``."""
    return (
        torch.compiler.is_dynamo_compiling()
        and not torch.compiler.is_exporting()
        and type(tensor) in (Tensor, Parameter)
        and not torch._C._are_functorch_transforms_active()
    )


def traced_brelu(input: Tensor, sign: Tensor) -> Tensor:
    """Bipolar ReLU for ``torch.compile``, which keeps the output alone for the backward pass, as it does for a ReLU.

    Of the plain formula it would keep a mask of booleans beside the output, which costs more than all the rest.
    """
    # The compiler does not notice when a tensor that a function keeps is changed in place later on. So what leaves here
    # is a copy; where nothing changes it, inductor leaves the copy out.
    return apply(TracedBReLU, input, sign).clone()


class TracedBReLU(torch.autograd.Function):
    """S relu(S x), with its derivative told from the output; every operation can be traced."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, sign: Tensor) -> Tensor:
        output = sign * torch.relu(sign * input)
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        return torch.where(output == 0, 0.0, grad), None
