"""The forward pass of the wavefront."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bipolar._rnn.wavefront.plan import Front, Plan


class Forward:
    """Computes the states front by front, with all signs taken out.

    ``h`` holds the states, ``between`` the values that they hand to the layer above, and ``before_skip`` the outputs of
    the activation where a skip is added to them.
    """

    def __init__(self, plan: Plan, x: Tensor, h0: Tensor, parameters: Sequence[Tensor | None]) -> None:
        self.plan, self.fronts = plan, plan.fronts()
        self.u0, self.u, self.w, self.bias = plan.conjugated(parameters)
        rising = torch.nn.functional.linear(x, self.u0, None if self.bias is None else self.bias[0])
        self.risings = rising.unbind(0)  # U x of the lowest layer
        self.output, self.last = torch.empty_like(rising), torch.empty_like(h0)
        self.h0, self.h0s, self.xs, self.outputs = h0, h0.unbind(0), x.unbind(0), self.output.unbind(0)
        self.entering, self.leaving = plan.sign / plan.noise.scale, plan.sign * plan.noise.scale
        self.h: list[Tensor] = []
        self.between: list[Tensor] = [] if plan.noisy else self.h
        self.before_skip: list[Tensor] = []

    def run(self) -> tuple[Tensor, Tensor]:
        """The outputs of the highest layer and the last states of all."""
        for j, front in enumerate(self.fronts):
            self.h.append(self.h0.new_empty(front.stop - front.start, *self.h0.shape[1:]))
            cells = front.cells(self.h[j])
            if front.low < front.high:
                self._activate(j, front, cells)
            if front.skip < front.high:
                self._add_skips(j, front, cells)
            for i in front.dropped:
                stayed = self.fronts[j - 1].of(self.h[j - 1], i, i + 1)
                cells[i - front.low] = front.after_reset(stayed, i, i + 1)[0]
            if self.plan.noisy:
                self._hand_up(j, front, cells)
            self._take_in(j, front)
            self._give_out(j, front, cells)
            if not self.plan.keep:
                self._forget(j)
        return self.output, self.last

    def _activate(self, j: int, front: Front, cells: Tensor) -> None:
        """f(W h + U x + b), in place."""
        low, high, u, bias = front.low, front.high, self.u, self.bias
        if low == 0:
            cells[0] = self.risings[front.d]
        above = max(low, 1)
        if above < high:
            below, ut = self.fronts[j - 1].of(self.between[j - 1], above - 1, high - 1), u[above - 1 : high - 1].mT
            if bias is None:
                torch.bmm(below, ut, out=cells[above - low :])
            else:
                torch.baddbmm(bias[above:high].unsqueeze(1), below, ut, out=cells[above - low :])
        cells.baddbmm_(self.plan.past(self.fronts, self.h, j), self.w[low:high].mT)
        self.plan.kernel.forward_(cells)

    def _add_skips(self, j: int, front: Front, cells: Tensor) -> None:
        every = self.plan.every
        ends = cells[front.skip - front.low :: every]
        if self.plan.keep:
            self.before_skip.append(ends.clone())
        starts = self.fronts[j - every].of(self.between[j - every], front.skip - every, front.high - every, every)
        ends.add_(starts, alpha=self.plan.alpha)

    def _hand_up(self, j: int, front: Front, cells: Tensor) -> None:
        """Dropout on the way to the layer above; a dropped block hands up its input."""
        plan, between, every = self.plan, self.between, self.plan.every
        between.append(torch.empty_like(self.h[j]))
        if plan.noise.output is None:
            front.cells(between[j]).copy_(cells)
        elif front.low < front.high:
            torch.mul(cells, plan.noise.output[front.d], out=front.cells(between[j]))
        for i in front.dropped:
            if plan.blocks.has_skip(i):
                between[j][i - front.start] = between[j - every][i - every - self.fronts[j - every].start]

    def _take_in(self, j: int, front: Front) -> None:
        """The stack's input and the initial state that the fronts after this one look for here."""
        if self.plan.blocks.same_width and front.start < front.low:
            torch.mul(self.xs[front.d + 1], self.entering, out=self.between[j][0])
        if front.stop > front.high:
            torch.mul(self.h0s[front.d + 1], self.plan.sign, out=self.h[j][-1])

    def _give_out(self, j: int, front: Front, cells: Tensor) -> None:
        """The output of the highest layer, and the state of each layer after the last step of each sequence."""
        if front.high == self.plan.layers:
            torch.mul(self.between[j][-1], self.leaving, out=self.outputs[front.d - front.high + 1])
        if front.ends is not None:
            layers, sequences = front.ends
            self.last[layers, sequences] = cells[layers - front.low, sequences] * self.plan.sign
        elif front.d - front.low == self.plan.steps - 1:
            torch.mul(cells[0], self.plan.sign, out=self.last[front.low])

    def _forget(self, j: int) -> None:
        """Frees a front that is farther back than a skip reaches."""
        done = j - (self.plan.blocks.every or 1)
        if done >= 0:
            self.h[done] = self.between[done] = self.h0
