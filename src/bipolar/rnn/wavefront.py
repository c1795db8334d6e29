r"""The stack along its diagonals, with a hand-written backward pass.

The cell of layer i at time t needs those of layer i - 1 at t and of layer i at t - 1. So all cells with i + t = d can be
computed together: a *front* that moves up the layers and on in time.

What makes it fast:

- The products of a front are one batched product, large enough for all cores even where a layer's own is not, and there
  are only T + L - 1 fronts for T L cells.
- A bipolar activation needs no signs: with :math:`W' = S W S`, :math:`U' = S U S` and :math:`b' = S b` the states are
  :math:`S h` and the activation is the plain one. The weights are conjugated once a pass. They take up the factor
  1 / (1 - p) of dropout, too, so that a mask is bytes, 0 or 1.
- Only the states are kept for the backward pass, before and after a skip: the derivative of the activation follows from
  its output. Each front is a tensor of its own, small enough that the allocator has it at hand.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bipolar.kernels import Kernel
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
    us, ws, bs = zip(*weights, strict=True)
    s = torch.ones(ws[0].size(0), dtype=input.dtype, device=input.device) if sign is None else sign
    scale = noise.scale
    x = input if noise.input is None else input * noise.input
    bias = None if bs[0] is None else torch.stack(bs) * s
    # the lowest layer's U x for all time steps at once
    rising = torch.nn.functional.linear(x, us[0] * (scale * s[:, None]), None if bias is None else bias[0])
    u = torch.stack(us[1:]) * (scale * s[:, None] * s) if len(us) > 1 else ws[0].new_empty(0, *ws[0].shape)
    w = torch.stack(ws) * (s[:, None] * s)
    plan = _Plan(len(x), len(us), blocks, skip_scale * scale, noise, kernel, torch.is_grad_enabled())
    output, last = _Wavefront.apply(
        x * s if blocks.same_width else None, rising, state * s, u, w, None if bias is None else bias[1:], plan
    )
    return output * (scale * s), last * s


class _Front(NamedTuple):
    """The cells of the layers from ``low`` up to, not including, ``high``: layer i at time d - i.

    The tensor of a front begins with layer ``start``, and ends before layer ``stop``. It has one place more than cells
    at the lower end for the stack's input of the coming step, as the value of a layer -1, and one at the upper end for
    the initial state of the coming layer, as long as there are such.
    """

    d: int
    low: int
    high: int
    start: int
    stop: int
    #: the lowest layer that ends a block with a skip, and so every ``blocks.every`` from there; ``high`` if there is none
    skip: int
    #: the layers of dropped blocks
    dropped: list[int]

    def of(self, tensor: Tensor, low: int, high: int, step: int = 1) -> Tensor:
        """What the front's tensor holds for these layers."""
        return tensor[low - self.start : high - self.start : step]

    def cells(self, tensor: Tensor) -> Tensor:
        return self.of(tensor, self.low, self.high)

    def mask(self, mask: Tensor) -> Tensor:
        """The cells of the front in a tensor of shape (layers, time, batch, units): a view."""
        _, time, batch, units = mask.shape
        cell = batch * units
        offset = (self.low * time + self.d - self.low) * cell
        return mask.as_strided((self.high - self.low, batch, units), ((time - 1) * cell, units, 1), offset)


class _Plan(NamedTuple):
    """What all cells of a pass have in common."""

    steps: int
    layers: int
    blocks: Blocks
    #: what a skip multiplies by: skip_scale, and the factor 1 / (1 - p) of dropout
    alpha: float
    noise: Noise
    kernel: Kernel
    keep: bool

    @property
    def every(self) -> int:
        return self.blocks.every or self.layers + self.steps + 1  # farther than any front

    def fronts(self) -> list[_Front]:
        """From d = -1, which has no cells, to the last."""
        dropped: dict[int, list[int]] = {}
        if self.noise.dropped is not None:
            for t, b in self.noise.dropped.nonzero().tolist():
                for i in range(b * self.every, (b + 1) * self.every):
                    if self.blocks.droppable(i):
                        dropped.setdefault(i + t, []).append(i)
        fronts = []
        for d in range(-1, self.layers + self.steps - 1):
            low, high = max(0, d - self.steps + 1), min(self.layers, d + 1)
            skip = next((i for i in range(low, high) if self.blocks.has_skip(i)), high)
            start, stop = max(-1, d - self.steps + 1), min(self.layers, d + 2)
            fronts.append(_Front(d, low, high, start, stop, skip, dropped.get(d, [])))
        return fronts


class _Wavefront(torch.autograd.Function):
    """The outputs of the highest layer and the last states of all."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor | None, rising: Tensor, h0: Tensor, u: Tensor, w: Tensor, bias: Tensor | None, plan: _Plan
    ) -> tuple[Tensor, Tensor]:
        noise, every, fronts = plan.noise, plan.every, plan.fronts()
        batch, units = h0.shape[1:]
        output, last = torch.empty_like(rising), torch.empty_like(h0)
        noisy = noise.output is not None or noise.dropped is not None
        h: list[Tensor] = []  # the states, front by front
        between: list[Tensor] = [] if noisy else h  # what they hand to the layer above
        before_skip: list[Tensor] = []
        for j, front in enumerate(fronts):
            d, low, high = front.d, front.low, front.high
            h.append(h0.new_empty(front.stop - front.start, batch, units))
            cells = front.cells(h[j])
            if d >= 0:
                if low == 0:
                    cells[0] = rising[d]
                above = max(low, 1)
                if above < high:
                    below, rows = fronts[j - 1].of(between[j - 1], above - 1, high - 1), slice(above - 1, high - 1)
                    if bias is None:
                        torch.bmm(below, u[rows].mT, out=cells[above - low :])
                    else:
                        torch.baddbmm(bias[rows].unsqueeze(1), below, u[rows].mT, out=cells[above - low :])
                cells.baddbmm_(_past(plan, fronts, h, j), w[low:high].mT)
                plan.kernel.forward_(cells)
            if front.skip < high:
                ends = cells[front.skip - low :: every]
                before_skip.append(ends.clone())
                starts = fronts[j - every].of(between[j - every], front.skip - every, high - every, every)
                ends.add_(starts, alpha=plan.alpha)
            for i in front.dropped:
                cells[i - low] = fronts[j - 1].of(h[j - 1], i, i + 1)[0]
            if noisy:
                between.append(torch.empty_like(h[j]))
                if noise.output is None:
                    front.cells(between[j]).copy_(cells)
                elif low < high:
                    torch.mul(cells, front.mask(noise.output), out=front.cells(between[j]))
                for i in front.dropped:
                    if plan.blocks.has_skip(i):
                        starts = fronts[j - every].of(between[j - every], i - every, i - every + 1)
                        front.of(between[j], i, i + 1).copy_(starts)
            if x is not None and front.start < low:
                between[j][0] = x[d + 1]
            if front.stop > high:
                h[j][-1] = h0[d + 1]
            if high == plan.layers:
                output[d - high + 1] = between[j][-1]
            if d - low == plan.steps - 1:
                last[low] = cells[0]
            if not plan.keep and j >= every:  # nothing looks farther back
                h[j - every] = between[j - every] = h0
        if plan.keep:
            ctx.save_for_backward(u, w, *h, *(between if noisy else ()), *before_skip)
        ctx.plan, ctx.noisy, ctx.has_bias = plan, noisy, bias is not None
        return output, last

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph: the fast path has no second derivative; use StackedRNN(backend='reference')"
            )
        plan: _Plan = ctx.plan
        noise, every, fronts = plan.noise, plan.every, plan.fronts()
        u, w, *saved = ctx.saved_tensors
        h = saved[: len(fronts)]
        between = saved[len(fronts) : 2 * len(fronts)] if ctx.noisy else h
        before_skip = saved[(2 if ctx.noisy else 1) * len(fronts) :]
        need_x, _, need_h0, need_u, need_w, need_bias, _ = ctx.needs_input_grad
        grad_x = torch.zeros_like(grad_output)
        grad_rising = torch.empty_like(grad_output)
        grad_h0, grad_u, grad_w = torch.zeros_like(grad_last), torch.zeros_like(u), torch.zeros_like(w)
        grad_bias = u.new_zeros(u.shape[:2])

        grads: dict[int, Tensor] = {}  # on the states of a front, as long as a skip may need them
        staying: dict[int, Tensor] = {}  # on the state of a dropped layer: it is that of the step before
        passing: dict[tuple[int, int], Tensor] = {}  # on the output of a dropped block: it is that of (layer, time) below
        dz = u  # on the input of the activation; that of the front after
        for j in reversed(range(1, len(fronts))):
            front, after = fronts[j], fronts[j + 1] if j + 1 < len(fronts) else fronts[j]
            d, low, high = front.d, front.low, front.high
            grads.pop(j + every + 1, None)
            grad = grads[j] = grad_output.new_empty(high - low, *grad_output.shape[1:])
            # first on what the cells hand to the layer above ...
            top = min(high, plan.layers - 1)
            if low < top:
                torch.bmm(dz[low + 1 - after.low : top + 1 - after.low], u[low:top], out=grad[: top - low])
            if top < high:
                grad[-1] = grad_output[d - top]
            if j + every in grads:
                ahead = fronts[j + every]
                skip = ahead.skip if ahead.skip >= every else ahead.skip + every  # not the one from the stack's input
                if skip < ahead.high:
                    starts = grad[skip - every - low : ahead.high - every - low : every]
                    starts.add_(grads[j + every][skip - ahead.low :: every], alpha=plan.alpha)
            for i, t in [place for place in passing if sum(place) == d]:
                grad[i - low] += passing.pop((i, t))
            for i in front.dropped:
                if plan.blocks.has_skip(i):
                    if i < every:
                        grad_x[d - i] += grad[i - low]
                    else:
                        passing[i - every, d - i] = grad[i - low].clone()
                    grad[i - low].zero_()
            if noise.output is not None:
                grad *= front.mask(noise.output)
            # ... then on the states, which the next step sees, too
            now = max(low, after.low)  # the lowest layer with a next step
            if now < high and j + 1 < len(fronts):
                if noise.recurrent is None:
                    grad[now - low :].baddbmm_(dz[now - after.low : high - after.low], w[now:high])
                else:
                    back = torch.bmm(dz[now - after.low : high - after.low], w[now:high])
                    grad[now - low :].addcmul_(back, noise.recurrent[now:high])
            if d - low == plan.steps - 1:
                grad[0] += grad_last[low]
            for i in after.dropped:
                if j + 1 < len(fronts) and i < high:
                    grad[i - low] += staying.pop(i)
            for i in front.dropped:
                staying[i] = grad[i - low].clone()
                grad[i - low].zero_()
            if front.skip == every - 1 and front.skip < high:
                grad_x[d - front.skip].add_(grad[front.skip - low], alpha=plan.alpha)
            # ... and through the activation
            dz = front.cells(h[j]).clone()
            if front.skip < high:
                dz[front.skip - low :: every] = before_skip.pop()
            plan.kernel.backward_(grad, dz, True)
            if low == 0:
                grad_rising[d] = dz[0]
            above = max(low, 1)
            if above < high:
                rows = slice(above - 1, high - 1)
                if need_u:
                    below = fronts[j - 1].of(between[j - 1], above - 1, high - 1)
                    grad_u[rows].baddbmm_(dz[above - low :].mT, below)
                if need_bias:
                    grad_bias[rows] += dz[above - low :].sum(1)
            if need_w:
                grad_w[low:high].baddbmm_(dz.mT, _past(plan, fronts, h, j))
            if need_h0 and high == d + 1:
                back = dz[-1] @ w[d]
                grad_h0[d] = back if noise.recurrent is None else back * noise.recurrent[d]
        for i, grad in staying.items():
            grad_h0[i] += grad
        return (
            grad_x if need_x else None,
            grad_rising,
            grad_h0 if need_h0 else None,
            grad_u if need_u else None,
            grad_w if need_w else None,
            grad_bias if need_bias else None,
            None,
        )


def _past(plan: _Plan, fronts: list[_Front], h: Sequence[Tensor], j: int) -> Tensor:
    """The states of the step before for the cells of a front, as they reach the cells."""
    low, high = fronts[j].low, fronts[j].high
    past = fronts[j - 1].of(h[j - 1], low, high)
    return past if plan.noise.recurrent is None else past * plan.noise.recurrent[low:high]
