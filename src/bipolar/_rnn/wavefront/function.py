"""The wavefront as a function of autograd."""

from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor

from bipolar._activations.kernels import Kernel
from bipolar._rnn.handwritten import refuse_unsupported_backward
from bipolar._rnn.stack_pass import StackPass
from bipolar._rnn.wavefront.backward import Backward, Kept, Needs
from bipolar._rnn.wavefront.forward import Forward
from bipolar._rnn.wavefront.plan import Plan


def run(task: StackPass, *, kernel: Kernel, sign: Tensor | None) -> tuple[Tensor, Tensor]:
    """:func:`bipolar._rnn.reference.run` for the activation S f(S x), with f as ``kernel`` and the diagonal of S as
    ``sign`` (None for a plain activation)."""
    x, state, weights, blocks, skip_scale, noise, reset, ends = task
    sign = x.new_ones(state.size(2)) if sign is None else sign
    plan = Plan(len(x), blocks, skip_scale * noise.scale, noise, kernel, sign, torch.is_grad_enabled(), reset, ends)
    parameters = [p for kind in zip(*weights, strict=True) for p in kind]  # all U, all W, all b
    return cast(tuple[Tensor, Tensor], cast(Any, _Wavefront).apply(x, state, plan, *parameters))


class _Wavefront(torch.autograd.Function):
    """The outputs of the highest layer and the last states of all, from all U, all W and all b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, h0: Tensor, plan: Plan, *parameters: Tensor | None) -> tuple[Tensor, Tensor]:
        forward = Forward(plan, x, h0, parameters)
        output, last = forward.run()
        if plan.keep:
            passed = [value for front in forward.passed for value in front]
            ctx.save_for_backward(x, forward.u0, forward.u, forward.w, *forward.h, *forward.before_skip, *passed)
        ctx.plan, ctx.fronts, ctx.has_bias = plan, forward.fronts, forward.bias is not None
        return output, last

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        refuse_unsupported_backward(grad_output)
        plan: Plan = ctx.plan
        x, u0, u, w, *saved = ctx.saved_tensors
        fronts = ctx.fronts
        tensors = iter(saved)
        h = list(islice(tensors, len(fronts)))
        before_skip = list(islice(tensors, sum(front.skip < front.high for front in fronts)))
        passed = [list(islice(tensors, len(plan.passing(front)))) for front in fronts]
        need_x, need_h0, _, need_u0, *needed = ctx.needs_input_grad
        need_u, need_w = any(needed[: plan.layers - 1]), any(needed[plan.layers - 1 : 2 * plan.layers - 1])
        needs = Needs(need_x, need_h0, need_u0, need_u, need_w, any(needed[2 * plan.layers - 1 :]))
        kept = Kept(x, u0, u, w, h, before_skip, passed)
        return Backward(plan, fronts, kept, needs, grad_output, grad_last).run(ctx.has_bias)
