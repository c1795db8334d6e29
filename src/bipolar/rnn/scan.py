r"""The stack layer by layer, with a hand-written backward pass.

What makes it fast:

- A bipolar activation needs no signs here: with :math:`W' = S W S`, :math:`U' = S U S` and :math:`b' = S b` the states
  are :math:`S h` and the activation is the plain one. The weights are conjugated once a pass.
- One product :math:`U x` for all time steps of a layer, and one for each weight gradient.
- The state is updated in place, and only the states are kept for the backward pass: the derivative of the activation
  follows from its output.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bipolar.kernels import Kernel, apply
from bipolar.rnn.blocks import Blocks
from bipolar.rnn.noise import Noise


def run(
    input: Tensor,
    state: Tensor,
    weights: Sequence[tuple[Tensor, Tensor, Tensor | None]],
    kernel: Kernel,
    sign: Tensor | None,
    blocks: Blocks,
    skip_scale: float,
    noise: Noise,
) -> tuple[Tensor, Tensor]:
    """As :func:`bipolar.rnn.reference.run`, for an activation S f(S x) given by ``kernel`` and ``sign``, the diagonal
    of S (None for a plain one)."""
    x = input if noise.input is None else input * noise.input
    flipped_input = x if sign is None or not blocks.same_width else x * sign
    block_input = flipped_input
    state = state if sign is None else state * sign
    states = []
    for i, (u, w, b) in enumerate(weights):
        if sign is not None:
            u, w = u * sign[:, None], w * sign[:, None] * sign
            u = u if i == 0 else u * sign
            b = None if b is None else b * sign
        if blocks.starts(i) and i:
            block_input = x
        dropped = None
        if noise.dropped is not None and blocks.droppable(i):
            dropped = noise.dropped[:, blocks.of(i)]
            dropped = dropped if bool(dropped.any()) else None
        skip = skip_scale * block_input if blocks.has_skip(i) else None
        mask = None if noise.recurrent is None else noise.recurrent[i]
        h = apply(Layer, x, state[i], u, w, b, skip, mask, dropped, kernel)
        states.append(h[-1])
        x = h if noise.output is None else h * noise.output[i]
        if dropped is not None and blocks.has_skip(i):
            x = torch.where(dropped[:, None, None], block_input, x)
    last = torch.stack(states)
    return (x, last) if sign is None else (x * sign, last * sign)


class Layer(torch.autograd.Function):
    """One layer over all time steps: the states h(1), ..., h(T) from x, h(0) and what belongs to the layer."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h0: Tensor,
        u: Tensor,
        w: Tensor,
        b: Tensor | None,
        skip: Tensor | None,
        mask: Tensor | None,
        dropped: Tensor | None,
        kernel: Kernel,
    ) -> Tensor:
        time, batch, inputs = x.shape
        flat = x.reshape(-1, inputs)
        a = (flat @ u.mT if b is None else torch.addmm(b, flat, u.mT)).view(time, batch, -1)
        h = a if skip is None else torch.empty_like(a)
        drops = [False] * time if dropped is None else dropped.tolist()
        past = h0
        for t in range(time):
            if drops[t]:
                h[t] = past
            else:
                a[t].addmm_(past if mask is None else past * mask, w.mT)
                kernel.forward_(a[t])
                if skip is not None:
                    torch.add(a[t], skip[t], out=h[t])
            past = h[t]
        ctx.save_for_backward(x, h0, u, w, mask, h, None if skip is None else a)
        ctx.kernel, ctx.drops, ctx.has_bias, ctx.has_skip = kernel, drops, b is not None, skip is not None
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph: the fast path has no second derivative; use StackedRNN(backend='reference')"
            )
        x, h0, u, w, mask, h, a = ctx.saved_tensors
        a = h if a is None else a
        time, batch, units = h.shape
        dz, dskip = torch.empty_like(h), torch.empty_like(h) if ctx.has_skip else None
        back = h0.new_zeros(batch, units)  # the gradient on h(t) from the steps after t
        for t in reversed(range(time)):
            back += grad[t]
            if ctx.drops[t]:
                dz[t].zero_()
                if dskip is not None:
                    dskip[t].zero_()
                continue
            if dskip is not None:
                dskip[t] = back
            dz[t] = a[t]
            ctx.kernel.backward_(back, dz[t], True)
            torch.mm(dz[t], w, out=back)
            if mask is not None:
                back *= mask
        flat = dz.view(-1, units)
        needs = ctx.needs_input_grad
        dx = (flat @ u).view_as(x) if needs[0] else None
        du = flat.mT @ x.reshape(-1, x.size(2)) if needs[2] else None
        dw = None
        if needs[3]:
            past = h[:-1] if mask is None else h[:-1] * mask
            first = h0 if mask is None else h0 * mask
            dw = torch.addmm(dz[0].mT @ first, dz[1:].reshape(-1, units).mT, past.reshape(-1, units))
        db = flat.sum(0) if ctx.has_bias and needs[4] else None
        return dx, back if needs[1] else None, du, dw, db, dskip, None, None, None
