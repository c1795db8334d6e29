r"""The stack layer by layer, with a hand-written backward pass: for wide layers.

Weights as large as a cache are best used for all time steps before those of the next layer are touched: one product
:math:`U x` for all steps, one for each weight gradient. Signs are treated as in :mod:`bipolar._rnn.wavefront`, and the
same tensors are kept for the backward pass.
"""

from typing import Any

import torch
from torch import Tensor

from bipolar._activations.kernels import Kernel, apply
from bipolar._rnn.handwritten import refuse_unsupported_backward
from bipolar._rnn.stack_pass import StackPass


def run(task: StackPass, *, kernel: Kernel, sign: Tensor | None) -> tuple[Tensor, Tensor]:
    """:func:`bipolar._rnn.reference.run` for the activation S f(S x), with f as ``kernel`` and the diagonal of S as
    ``sign`` (None for a plain activation)."""
    x, state, weights, blocks, skip_scale, noise, reset, ends = task
    steps = len(x)
    block_input = x if sign is None or not blocks.same_width else x * sign
    state = state if sign is None else state * sign
    states = []
    for i, (u, w, b) in enumerate(weights):
        if sign is not None:
            u, w = u * (sign[:, None] if i == 0 else sign[:, None] * sign), w * (sign[:, None] * sign)
            b = None if b is None else b * sign
        if blocks.starts(i) and i:
            block_input = x
        dropped = None
        if noise.dropped is not None and blocks.droppable(i):
            dropped = noise.dropped[:, blocks.of(i)]
            dropped = dropped if bool(dropped.any()) else None
        skip = block_input if blocks.has_skip(i) else None
        mask = None if noise.recurrent is None else noise.recurrent[i]
        h = apply(_LayerScan, x, state[i], u, w, b, skip, skip_scale, mask, dropped, reset, kernel)
        # a copy: a view would keep all states of the layer
        states.append(h[-1].clone() if ends is None else h[ends, torch.arange(len(ends), device=ends.device)])
        x = h
        if noise.output is not None:
            masks = [noise.output_at(i, t, len(weights), steps) for t in range(steps)]
            x = h * torch.stack(masks) * noise.scale
        if dropped is not None and blocks.has_skip(i):
            x = torch.where(dropped[:, None, None], block_input, x)
    last = torch.stack(states)
    return (x.clone(), last) if sign is None else (x * sign, last * sign)


class _LayerScan(torch.autograd.Function):
    """One layer over all time steps: the states h(1), ..., h(T) from x, h(0) and the parameters of the layer."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h0: Tensor,
        u: Tensor,
        w: Tensor,
        b: Tensor | None,
        skip: Tensor | None,
        alpha: float,
        mask: Tensor | None,
        dropped: Tensor | None,
        reset: Tensor | None,
        kernel: Kernel,
    ) -> Tensor:
        a = torch.nn.functional.linear(x, u, b)
        h = a if skip is None else torch.empty_like(a)
        drops = [False] * len(x) if dropped is None else dropped.tolist()
        resets = [False] * len(x) if reset is None else reset.any(1).tolist()
        past = h0
        for t, (before_skip, now) in enumerate(zip(a.unbind(0), h.unbind(0), strict=True)):
            if reset is not None and resets[t]:
                past = past.masked_fill(reset[t].unsqueeze(1), 0)
            if drops[t]:
                now.copy_(past)
            else:
                before_skip.addmm_(past if mask is None else past * mask, w.mT)
                kernel.forward_(before_skip)
                if skip is not None:
                    torch.add(before_skip, skip[t], alpha=alpha, out=now)
            past = now
        ctx.save_for_backward(x, h0, u, w, mask, reset, h, None if skip is None else a)
        ctx.kernel, ctx.drops, ctx.resets, ctx.has_bias, ctx.alpha = kernel, drops, resets, b is not None, alpha
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_unsupported_backward(grad)
        x, h0, u, w, mask, reset, h, before_skip = ctx.saved_tensors
        time, batch, units = h.shape
        dz = (h if before_skip is None else before_skip).clone()
        skip = None if before_skip is None else torch.empty_like(h)
        back = h0.new_zeros(batch, units)  # on h(t), from the steps after t
        for t in reversed(range(time)):
            back += grad[t]
            if ctx.drops[t]:
                dz[t].zero_()
                if skip is not None:
                    skip[t].zero_()
            else:
                if skip is not None:
                    torch.mul(back, ctx.alpha, out=skip[t])
                ctx.kernel.backward_(back, dz[t], True)
                torch.mm(dz[t], w, out=back)
                if mask is not None:
                    back *= mask
            if ctx.resets[t]:
                back.masked_fill_(reset[t].unsqueeze(1), 0)
        flat, need = dz.view(-1, units), ctx.needs_input_grad
        grad_w = None
        if need[3]:
            past, first = h[:-1], h0
            if reset is not None:
                first, past = first.masked_fill(reset[0].unsqueeze(1), 0), past.masked_fill(reset[1:].unsqueeze(2), 0)
            if mask is not None:
                first, past = first * mask, past * mask
            grad_w = torch.addmm(dz[0].mT @ first, dz[1:].view(-1, units).mT, past.reshape(-1, units))
        return (
            (flat @ u).view_as(x) if need[0] else None,
            back if need[1] else None,
            flat.mT @ x.reshape(-1, x.size(2)) if need[2] else None,
            grad_w,
            flat.sum(0) if ctx.has_bias and need[4] else None,
            skip,
            None,
            None,
            None,
            None,
            None,
        )
