r"""The stack along its diagonals, with a hand-written backward pass.

The cell of layer i at time t needs those of layer i - 1 at t and of layer i at t - 1. So all cells with i + t = d can
be computed together: a *front* that moves up the layers and on in time.

What makes it fast:

- The products of a front are one batched product, large enough for all cores even where a layer's own is not, and there
  are only T + L - 1 fronts for T L cells.
- A bipolar activation needs no signs: with :math:`W' = S W S`, :math:`U' = S U S` and :math:`b' = S b` the states are
  :math:`S h` and the activation is the plain one. The weights are conjugated once a pass. They take up the factor
  1 / (1 - p) of dropout, too, so that a mask is small integers, 0 or 1.
- Only the states are kept for the backward pass, before and after a skip: the derivative of the activation follows from
  its output. Each front is a tensor of its own, small enough that the allocator has it at hand.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from bipolar._activations.kernels import Kernel
from bipolar._rnn.blocks import Blocks
from bipolar._rnn.fronts import Front, layers_at
from bipolar._rnn.noise import Noise


def run(
    input: Tensor,
    state: Tensor,
    weights: Sequence[tuple[Tensor, Tensor, Tensor | None]],
    blocks: Blocks,
    skip_scale: float,
    noise: Noise,
    *,
    kernel: Kernel,
    sign: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """As :func:`bipolar._rnn.reference.run`, for an activation S f(S x) given by ``kernel`` and ``sign``, the diagonal
    of S (None for a plain one)."""
    sign = input.new_ones(state.size(2)) if sign is None else sign
    plan = _Plan(len(input), blocks, skip_scale * noise.scale, noise, kernel, sign, torch.is_grad_enabled())
    parameters = [p for kind in zip(*weights, strict=True) for p in kind]  # all U, all W, all b
    return cast(tuple[Tensor, Tensor], cast(Any, _Wavefront).apply(input, state, plan, *parameters))


class _Plan(NamedTuple):
    """What all cells of a pass have in common."""

    steps: int
    blocks: Blocks
    #: what a skip multiplies by: skip_scale, and the factor 1 / (1 - p) of dropout
    alpha: float
    noise: Noise
    kernel: Kernel
    sign: Tensor
    keep: bool

    @property
    def layers(self) -> int:
        return self.blocks.num_layers

    @property
    def every(self) -> int:
        return self.blocks.every or self.layers + self.steps + 1  # farther than any front

    def fronts(self) -> list[Front]:
        """From d = -1, which has no cells, to the last."""
        dropped: dict[int, list[int]] = {}
        if self.noise.dropped is not None:
            for t, block in self.noise.dropped.nonzero().tolist():
                for i in range(block * self.every, (block + 1) * self.every):
                    if self.blocks.droppable(i):
                        dropped.setdefault(i + t, []).append(i)
        fronts = []
        for d in range(-1, self.layers + self.steps - 1):
            layers = layers_at(d, self.layers, self.steps)
            skip = next((i for i in layers if self.blocks.has_skip(i)), layers.stop)
            start, stop = max(-1, d - self.steps + 1), min(self.layers, d + 2)
            fronts.append(Front(d, layers.start, layers.stop, start, stop, skip, dropped.get(d, [])))
        return fronts

    def conjugated(self, parameters: Sequence[Tensor | None]) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """U of the lowest layer, U of the others, W and b of all."""
        us, ws, bs = (cast(list[Tensor], parameters[i * self.layers : (i + 1) * self.layers]) for i in range(3))
        both, w = self.sign[:, None] * self.sign, torch.stack(ws)
        u = torch.stack(us[1:]) if self.layers > 1 else w.new_empty(0, *both.shape)
        bias = None if bs[0] is None else torch.stack(bs).mul_(self.sign)
        return us[0] * self.sign[:, None], u.mul_(both * self.noise.scale), w.mul_(both), bias


class _Wavefront(torch.autograd.Function):
    """The outputs of the highest layer and the last states of all, from all U, all W and all b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, h0: Tensor, plan: _Plan, *parameters: Tensor | None) -> tuple[Tensor, Tensor]:
        noise, sign, every, fronts = plan.noise, plan.sign, plan.every, plan.fronts()
        u0, u, w, bias = plan.conjugated(parameters)
        rising = torch.nn.functional.linear(x, u0, None if bias is None else bias[0])  # all U x of the lowest layer
        output, last = torch.empty_like(rising), torch.empty_like(h0)
        xs, risings, h0s, outputs = x.unbind(0), rising.unbind(0), h0.unbind(0), output.unbind(0)
        entering, leaving = sign / noise.scale, sign * noise.scale
        noisy = noise.output is not None or noise.dropped is not None
        h: list[Tensor] = []  # the states, front by front
        between: list[Tensor] = [] if noisy else h  # what they hand to the layer above
        before_skip: list[Tensor] = []
        for j, front in enumerate(fronts):
            d, low, high = front.d, front.low, front.high
            h.append(h0.new_empty(front.stop - front.start, *h0.shape[1:]))
            cells = front.cells(h[j])
            if low < high:
                if low == 0:
                    cells[0] = risings[d]
                above = max(low, 1)
                if above < high:
                    below, ut = fronts[j - 1].of(between[j - 1], above - 1, high - 1), u[above - 1 : high - 1].mT
                    if bias is None:
                        torch.bmm(below, ut, out=cells[above - low :])
                    else:
                        torch.baddbmm(bias[above:high].unsqueeze(1), below, ut, out=cells[above - low :])
                cells.baddbmm_(_past(plan, fronts, h, j), w[low:high].mT)
                plan.kernel.forward_(cells)
            if front.skip < high:
                ends = cells[front.skip - low :: every]
                if plan.keep:
                    before_skip.append(ends.clone())
                starts = fronts[j - every].of(between[j - every], front.skip - every, high - every, every)
                ends.add_(starts, alpha=plan.alpha)
            for i in front.dropped:
                cells[i - low] = h[j - 1][i - fronts[j - 1].start]
            if noisy:
                between.append(torch.empty_like(h[j]))
                if noise.output is None:
                    front.cells(between[j]).copy_(cells)
                elif low < high:
                    torch.mul(cells, noise.output[d], out=front.cells(between[j]))
                for i in front.dropped:
                    if plan.blocks.has_skip(i):
                        between[j][i - front.start] = between[j - every][i - every - fronts[j - every].start]
            if plan.blocks.same_width and front.start < low:
                torch.mul(xs[d + 1], entering, out=between[j][0])
            if front.stop > high:
                torch.mul(h0s[d + 1], sign, out=h[j][-1])
            if high == plan.layers:
                torch.mul(between[j][-1], leaving, out=outputs[d - high + 1])
            if d - low == plan.steps - 1:
                torch.mul(cells[0], sign, out=last[low])
            done = j - (plan.blocks.every or 1)
            if not plan.keep and done >= 0:  # nothing looks farther back
                h[done] = between[done] = h0
        if plan.keep:
            ctx.save_for_backward(x, u0, u, w, *h, *(between if noisy else ()), *before_skip)
        ctx.plan, ctx.fronts, ctx.noisy, ctx.has_bias = plan, fronts, noisy, bias is not None
        return output, last

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        refuse_what_has_no_formula(grad_output)
        plan: _Plan = ctx.plan
        fronts: list[Front] = ctx.fronts
        noise, sign, every = plan.noise, plan.sign, plan.every
        x, u0, u, w, *saved = ctx.saved_tensors
        h = saved[: len(fronts)]
        between = saved[len(fronts) : 2 * len(fronts)] if ctx.noisy else h
        before_skip = saved[(2 if ctx.noisy else 1) * len(fronts) :]
        need_x, need_h0, _, need_u0, *needed = ctx.needs_input_grad
        need_u, need_w = any(needed[: plan.layers - 1]), any(needed[plan.layers - 1 : 2 * plan.layers - 1])
        need_bias = any(needed[2 * plan.layers - 1 :])
        grad_outputs, grad_lasts = grad_output.unbind(0), grad_last.unbind(0)
        entering, leaving = sign / noise.scale, sign * noise.scale
        grad_rising = torch.empty_like(grad_output, memory_format=torch.contiguous_format)
        grad_skip = torch.zeros_like(grad_rising) if plan.blocks.same_width else None  # on x, but for U x
        grad_h0, grad_u, grad_w = torch.zeros_like(grad_last), torch.zeros_like(u), torch.zeros_like(w)
        grad_bias = w.new_zeros(w.shape[:2])

        grads: dict[int, Tensor] = {}  # on the states of a front, as long as a skip may need them
        staying: dict[int, Tensor] = {}  # on the state of a dropped layer: it is that of the step before
        passing: dict[tuple[int, int], Tensor] = {}  # on what a dropped block handed on: it is that of (layer, time)
        dz = u  # on the input of the activation, for the front after
        for j in reversed(range(1, len(fronts))):
            front, after = fronts[j], fronts[j + 1] if j + 1 < len(fronts) else None
            d, low, high = front.d, front.low, front.high
            grads.pop(j + every + 1, None)
            grad = grads[j] = torch.empty_like(front.cells(h[j]))
            # first on what the cells hand to the layer above ...
            top = min(high, plan.layers - 1)
            if after and low < top:
                torch.bmm(dz[low + 1 - after.low : top + 1 - after.low], u[low:top], out=grad[: top - low])
            if top < high:
                torch.mul(grad_outputs[d - top], leaving, out=grad[-1])
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
                    if i >= every:
                        passing[i - every, d - i] = grad[i - low].clone()
                    elif grad_skip is not None:
                        grad_skip[d - i] += grad[i - low]
                    grad[i - low].zero_()
            if noise.output is not None:
                grad *= noise.output[d]
            # ... then on the states, which the next step sees, too ...
            if after:
                now = max(low, after.low)  # the lowest layer that has a next step
                if now < high:
                    later = dz[now - after.low : high - after.low]
                    if noise.recurrent is None:
                        grad[now - low :].baddbmm_(later, w[now:high])
                    else:
                        grad[now - low :].addcmul_(torch.bmm(later, w[now:high]), noise.recurrent[now:high])
                for i in after.dropped:
                    if i < high:
                        grad[i - low] += staying.pop(i)
            if d - low == plan.steps - 1:
                grad[0].addcmul_(grad_lasts[low], sign)
            for i in front.dropped:
                staying[i] = grad[i - low].clone()
                grad[i - low].zero_()
            if grad_skip is not None and front.skip == every - 1 < high:
                grad_skip[d - front.skip].add_(grad[front.skip - low], alpha=plan.alpha)
            # ... and through the activation to the weights
            dz = front.cells(h[j]).clone()
            if front.skip < high:
                dz[front.skip - low :: every] = before_skip.pop()
            plan.kernel.backward_(grad, dz, True)
            if low == 0:
                grad_rising[d] = dz[0]
            above = max(low, 1)
            if need_u and above < high:
                below = fronts[j - 1].of(between[j - 1], above - 1, high - 1)
                grad_u[above - 1 : high - 1].baddbmm_(dz[above - low :].mT, below)
            if need_bias:
                grad_bias[low:high] += dz.sum(1)
            if need_w:
                grad_w[low:high].baddbmm_(dz.mT, _past(plan, fronts, h, j))
            if need_h0 and high == d + 1:
                back = dz[-1] @ w[d]
                grad_h0[d] = back if noise.recurrent is None else back * noise.recurrent[d]
        for i, grad in staying.items():
            grad_h0[i] += grad

        both, flat = sign[:, None] * sign, grad_rising.view(-1, len(sign))
        grad_x = grad_u0 = None
        if need_x:
            grad_x = grad_rising.new_zeros(x.shape) if grad_skip is None else grad_skip.mul_(entering)
            grad_x.view(-1, x.size(2)).addmm_(flat, u0)
        if need_u0:
            grad_u0 = (flat.mT @ x.reshape(-1, x.size(2))).mul_(sign[:, None])
        grad_bs = grad_bias.mul_(sign).unbind(0) if ctx.has_bias else [None] * plan.layers
        grad_us, grad_ws = grad_u.mul_(both * noise.scale).unbind(0), grad_w.mul_(both).unbind(0)
        return grad_x, grad_h0.mul_(sign), None, grad_u0, *grad_us, *grad_ws, *grad_bs


def _past(plan: _Plan, fronts: list[Front], h: Sequence[Tensor], j: int) -> Tensor:
    """The states of the step before for the cells of a front, as they reach the cells."""
    low, high = fronts[j].low, fronts[j].high
    past = fronts[j - 1].of(h[j - 1], low, high)
    return past if plan.noise.recurrent is None else past * plan.noise.recurrent[low:high]


def refuse_what_has_no_formula(grad: Tensor) -> None:
    """For a backward pass that is not differentiable itself, and that works in place."""
    if torch.is_grad_enabled():
        raise RuntimeError("create_graph: the fast path has no second derivative; use StackedRNN(backend='reference')")
    if torch._C._functorch.is_legacy_batchedtensor(grad) or torch._C._functorch.is_batchedtensor(grad):
        raise RuntimeError("is_grads_batched: not on the fast path; use StackedRNN(backend='reference')")
