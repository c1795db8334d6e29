"""The backward pass of the wavefront."""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bipolar._rnn.wavefront.plan import Front, Plan


class Kept(NamedTuple):
    """The tensors that the forward pass keeps; see :class:`bipolar._rnn.wavefront.forward.Forward`."""

    x: Tensor
    u0: Tensor
    u: Tensor
    w: Tensor
    h: Sequence[Tensor]
    before_skip: list[Tensor]
    passed: Sequence[Sequence[Tensor]]


class Needs(NamedTuple):
    """Whether a gradient is asked for."""

    x: bool
    h0: bool
    u0: bool
    u: bool
    w: bool
    bias: bool


class Backward:
    """Computes the gradients front by front, from the last to the first."""

    def __init__(
        self, plan: Plan, fronts: Sequence[Front], kept: Kept, needs: Needs, grad_output: Tensor, grad_last: Tensor
    ) -> None:
        self.plan, self.fronts, self.kept, self.needs = plan, fronts, kept, needs
        self.grad_outputs, self.grad_last = grad_output.unbind(0), grad_last
        self.leaving = plan.sign * plan.noise.scale
        self.grad_rising = torch.empty_like(grad_output, memory_format=torch.contiguous_format)  # on U x at the bottom
        self.grad_skip = torch.zeros_like(self.grad_rising) if plan.blocks.same_width else None  # on x, but for U x
        self.grad_h0 = torch.zeros_like(grad_last)
        self.grad_u, self.grad_w = torch.zeros_like(kept.u), torch.zeros_like(kept.w)
        self.grad_bias = kept.w.new_zeros(kept.w.shape[:2])
        self.scratch = plan.scratch(fronts, grad_last)
        #: gradients on the states of a front, by front, as long as a skip may need them
        self.grads: dict[int, Tensor] = {}
        #: gradients on the state of a dropped layer, by layer: its state is that of the step before
        self.staying: dict[int, Tensor] = {}
        #: gradients on the input that a dropped block handed up, by the layer and time of that input
        self.passing: dict[tuple[int, int], Tensor] = {}

    def run(self, has_bias: bool) -> tuple[Tensor | None, ...]:
        """The gradients of x, h0, the plan, all U, all W and all b."""
        dz, after = self.kept.u, None  # on the input of the activation, of the front after; none at first
        for j in reversed(range(1, len(self.fronts))):
            front = self.fronts[j]
            self.grads.pop(j + self.plan.every + 1, None)
            grad = self.grads[j] = torch.empty_like(front.cells(self.kept.h[j]))
            self._collect_from_above(j, grad, dz, after)
            self._collect_from_next_step(front, grad, dz, after)
            dz, after = self._through_activation(j, grad), front
            self._add_to_parameters(j, dz)
        for i, grad in self.staying.items():
            self.grad_h0[i] += grad
        return self._with_signs(has_bias)

    def _collect_from_above(self, j: int, grad: Tensor, dz: Tensor, after: Front | None) -> None:
        """The gradient on the values that the cells hand up: from the layer above, the stack's output and skips."""
        plan, (d, low, high, *_) = self.plan, self.fronts[j]
        top = min(high, plan.layers - 1)
        if after and low < top:
            torch.bmm(dz[low + 1 - after.low : top + 1 - after.low], self.kept.u[low:top], out=grad[: top - low])
        if top < high:
            torch.mul(self.grad_outputs[d - top], self.leaving, out=grad[-1])
        if j + plan.every in self.grads:
            self._collect_from_skips(j, grad)
        if plan.noise.dropped is not None:
            self._pass_by_dropped_blocks(self.fronts[j], grad)
        if plan.noise.output is not None:
            plan.noise.output.fronts[d].zero_(grad)

    def _collect_from_skips(self, j: int, grad: Tensor) -> None:
        every, low, ahead = self.plan.every, self.fronts[j].low, self.fronts[j + self.plan.every]
        skip = ahead.skip if ahead.skip >= every else ahead.skip + every  # not the one from the stack's input
        if skip < ahead.high:
            starts = grad[skip - every - low : ahead.high - every - low : every]
            starts.add_(self.grads[j + every][skip - ahead.low :: every], alpha=self.plan.alpha)

    def _pass_by_dropped_blocks(self, front: Front, grad: Tensor) -> None:
        """A dropped block hands its gradient to its input, all of it."""
        d, low, every = front.d, front.low, self.plan.every
        for i, t in [place for place in self.passing if sum(place) == d]:
            grad[i - low] += self.passing.pop((i, t))
        for i in front.dropped:
            if self.plan.blocks.has_skip(i):
                if i >= every:
                    self.passing[i - every, d - i] = grad[i - low].clone()
                elif self.grad_skip is not None:
                    self.grad_skip[d - i] += grad[i - low]
                grad[i - low].zero_()

    def _collect_from_next_step(self, front: Front, grad: Tensor, dz: Tensor, after: Front | None) -> None:
        """The gradient on the states: from the next time step and the last states, beside that from above."""
        w, low, high = self.kept.w, front.low, front.high
        if after:
            now = after.low  # the lowest layer that has a next step
            if now < high:
                here, later = grad[now - low :], dz[now - after.low : high - after.low]
                drops = after.forgotten
                with contextlib.nullcontext() if drops is None else drops.rows(0, high - now).held(here):
                    if after.reset is None:
                        here.baddbmm_(later, w[now:high])
                    else:
                        here += after.after_reset(torch.bmm(later, w[now:high]), now, high)
            for i in after.dropped:
                if i < high:
                    grad[i - low] += self.staying.pop(i)
        if front.ends is not None:
            layers, sequences = front.ends
            grad[layers - low, sequences] += self.grad_last[layers, sequences] * self.plan.sign
        elif front.d - low == self.plan.steps - 1:
            grad[0].addcmul_(self.grad_last[low], self.plan.sign)
        for i in front.dropped:
            self.staying[i] = front.after_reset(grad[i - low : i - low + 1].clone(), i, i + 1)[0]
            grad[i - low].zero_()

    def _through_activation(self, j: int, grad: Tensor) -> Tensor:
        """The gradient on the input of the activation; a skip from the stack's input takes its share before."""
        plan, front = self.plan, self.fronts[j]
        low, high, skip = front.low, front.high, front.skip
        if self.grad_skip is not None and skip == plan.every - 1 < high:
            self.grad_skip[front.d - skip].add_(grad[skip - low], alpha=plan.alpha)
        dz = front.cells(self.kept.h[j]).clone()
        if skip < high:
            dz[skip - low :: plan.every] = self.kept.before_skip.pop()
        plan.kernel.backward_(grad, dz, True)
        return dz

    def _add_to_parameters(self, j: int, dz: Tensor) -> None:
        """The share of a front in the gradients of U, W, b and of the initial state of a layer that starts here."""
        plan, fronts, front = self.plan, self.fronts, self.fronts[j]
        d, low, high = front.d, front.low, front.high
        if low == 0:
            self.grad_rising[d] = dz[0]
        above = max(low, 1)
        if self.needs.u and above < high:
            handed = plan.handed_up(fronts[j - 1], self.kept.h[j - 1], self.kept.passed[j - 1], self.scratch)
            below = fronts[j - 1].of(handed, above - 1, high - 1)
            self.grad_u[above - 1 : high - 1].baddbmm_(dz[above - low :].mT, below)
        if self.needs.bias:
            self.grad_bias[low:high] += dz.sum(1)
        if self.needs.w:
            with plan.past(fronts, self.kept.h, j) as past:
                self.grad_w[low:high].baddbmm_(dz.mT, past)
        if self.needs.h0 and high == d + 1:
            back = front.after_reset((dz[-1] @ self.kept.w[d]).unsqueeze(0), d, high)[0]
            drops = front.forgotten
            self.grad_h0[d] = back if drops is None else drops.rows(d - low, high - low).zero_(back.unsqueeze(0))[0]

    def _with_signs(self, has_bias: bool) -> tuple[Tensor | None, ...]:
        """The gradients of the tensors that the forward pass was given, from those without signs."""
        sign, noise, x = self.plan.sign, self.plan.noise, self.kept.x
        scale, recurrent_scale = noise.scale, noise.recurrent_scale
        both, flat = sign[:, None] * sign, self.grad_rising.view(-1, len(sign))
        grad_x = grad_u0 = None
        if self.needs.x:
            grad_x = flat.new_zeros(x.shape) if self.grad_skip is None else self.grad_skip.mul_(sign / scale)
            grad_x.view(-1, x.size(2)).addmm_(flat, self.kept.u0)
        if self.needs.u0:
            grad_u0 = (flat.mT @ x.reshape(-1, x.size(2))).mul_(sign[:, None])
        grad_us, grad_ws = self.grad_u.mul_(both * scale).unbind(0), self.grad_w.mul_(both * recurrent_scale).unbind(0)
        grad_bs = self.grad_bias.mul_(sign).unbind(0) if has_bias else [None] * self.plan.layers
        return grad_x, self.grad_h0.mul_(sign), None, grad_u0, *grad_us, *grad_ws, *grad_bs
