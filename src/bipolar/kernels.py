r"""S f(S x) at the cost of f: one new tensor in each direction, one tensor kept for the backward pass.

The plain formula ``sign * f(sign * x)`` allocates three tensors on the way forward and three on the way back, and for
large inputs the allocations cost more than the arithmetic. Here the signs are flipped in place, in the tensor that is
needed anyway. Everything is built from torch's own kernels, so it runs on every device and dtype that torch does, and
agrees with torch at infinities and kinks.

What is kept for the backward pass is the output where the derivative follows from it (the next layer usually keeps
that very tensor too), else the input.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from bipolar.pattern import Pattern, flipped, kept

aten = torch.ops.aten


class Kernel(NamedTuple):
    """A plain activation f, as torch's own kernels compute it; ``out`` stands for their optional output argument."""

    #: (u, **out) -> f(u)
    forward: Callable[..., Tensor]
    #: (grad, u, from_output, **out) -> grad * f', where u is f's output if ``from_output`` and its input otherwise
    backward: Callable[..., Tensor]
    #: whether f' can be told from f's output
    output_suffices: bool


def relu() -> Kernel:
    return Kernel(
        forward=lambda u, **out: aten.relu(u, **out),
        backward=lambda grad, u, _, **out: aten.threshold_backward(grad, u, 0, **out),
        output_suffices=True,
    )


def leaky_relu(negative_slope: float) -> Kernel:
    return Kernel(
        forward=lambda u, **out: aten.leaky_relu(u, negative_slope, **out),
        backward=lambda grad, u, from_output, **out: aten.leaky_relu_backward(
            grad, u, negative_slope, from_output, **out
        ),
        output_suffices=negative_slope >= 0,
    )


def elu(alpha: float, scale: float = 1.0, input_scale: float = 1.0) -> Kernel:
    """scale * (x if x > 0 else alpha * (exp(input_scale * x) - 1)): ELU, SELU and CELU in one, as in torch."""
    arguments = (alpha, scale, input_scale)
    return Kernel(
        forward=lambda u, **out: aten.elu(u, *arguments, **out),
        backward=lambda grad, u, from_output, **out: aten.elu_backward(grad, *arguments, from_output, u, **out),
        output_suffices=alpha >= 0 and input_scale > 0,
    )


def gelu(approximate: str) -> Kernel:
    return Kernel(
        forward=lambda u, **out: aten.gelu(u, approximate=approximate, **out),
        backward=lambda grad, u, _, **out: aten.gelu_backward(grad, u, approximate=approximate, **out),
        output_suffices=False,
    )


def silu() -> Kernel:
    def backward(grad: Tensor, u: Tensor, _: bool, **out: Tensor) -> Tensor:
        if out:
            return cast(Tensor, aten.silu_backward(grad, u, **out))
        sigmoid = torch.sigmoid(u)  # torch has no derivative of silu_backward
        return grad * sigmoid * (1 + u * (1 - sigmoid))

    return Kernel(forward=lambda u, **out: aten.silu(u, **out), backward=backward, output_suffices=False)


def is_plain(tensor: Tensor) -> bool:
    """Whether the functions below can work on ``tensor``, rather than the plain formula.

    That is in eager mode, without a tensor subclass, a transform of ``torch.func`` or forward-mode differentiation.
    """
    return not (
        torch.compiler.is_compiling()
        or type(tensor) not in (Tensor, Parameter)
        or torch.func.debug_unwrap(tensor, recurse=False) is not tensor
        or torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None
    )


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    """``function.apply``, typed."""
    return cast(Tensor, function.apply(*arguments))


class BipolarFunction(torch.autograd.Function):
    """f_B(x) = S f(S x) for any :class:`Kernel`.

    In eager mode the signs are flipped in place. ``torch.compile`` fuses the plain formula by itself; there this
    function only says what to keep, because autograd would keep more.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, sign: Tensor, kernel: Kernel, inplace: bool) -> Tensor:
        # In half precision an output close to saturation has too few digits left to tell the derivative.
        precise = torch.finfo(input.dtype).bits >= 32
        ctx.kernel, ctx.from_output = kernel, inplace or (kernel.output_suffices and precise)
        if torch.compiler.is_compiling():
            output = sign * kernel.forward(sign * input)
        else:
            if inplace:
                ctx.mark_dirty(input)
            output = input.mul_(sign) if inplace else input * sign
            kernel.forward(output, out=output)
            output.mul_(sign)
        ctx.save_for_backward(output if ctx.from_output else input, sign)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        tensor, sign = ctx.saved_tensors
        u = tensor * sign
        if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            try:
                return ctx.kernel.backward(grad, u, ctx.from_output, grad_input=u), None, None, None
            except RuntimeError:  # a batch of gradients (is_grads_batched): vmap does not know out=
                pass
        return ctx.kernel.backward(grad, u, ctx.from_output), None, None, None


class BReLUFunction(torch.autograd.Function):
    """Bipolar ReLU: max(x, 0) for kept and min(x, 0) for flipped channels, one pass in each direction."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, dim: int, pattern: Pattern, inplace: bool) -> Tensor:
        if inplace:
            ctx.mark_dirty(input)
        output = input if inplace else torch.empty_like(input)
        channels = input.size(dim)
        up, down = kept(channels, pattern), flipped(channels, pattern)
        if input.stride(dim) == 1:  # neighbours in memory: slices would be strided, and slow
            upper = input.new_zeros(channels)
            lower = torch.zeros_like(upper)
            upper[up].fill_(math.inf)
            lower[down].fill_(-math.inf)
            broadcast = (-1, *[1] * (input.ndim - 1 - dim))
            torch.clamp(input, lower.view(broadcast), upper.view(broadcast), out=output)
        else:
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
        return aten.hardshrink_backward(grad, output, 0.0), None, None, None
