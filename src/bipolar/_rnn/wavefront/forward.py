"""The forward pass of the wavefront."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bipolar._rnn.wavefront.plan import Front, Plan


class Forward:
    """Computes the states front by front, with all signs taken out.

    ``h`` holds the states, ``before_skip`` the outputs of the activation where a skip is added to them, and ``passed``
    the values that passed by a dropped block.
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
        self.before_skip: list[Tensor] = []
        self.passed: list[list[Tensor]] = []
        #: the values that the front before hands up
        self.below = h0
        #: the values that skips add, by front, as long as they are needed
        self.skipping: dict[int, Tensor] = {}
        self.scratch = plan.scratch(self.fronts, h0)

    def run(self) -> tuple[Tensor, Tensor]:
        """The outputs of the highest layer and the last states of all."""
        for j, front in enumerate(self.fronts):
            self.h.append(self.h0.new_empty(front.stop - front.start, *self.h0.shape[1:]))
            cells = front.cells(self.h[j])
            if front.low < front.high:
                self._activate(j, front, cells)
            skipping = self.skipping.pop(j, None)
            if skipping is not None:
                self._add_skips(front, cells, skipping)
            for i in front.dropped:
                stayed = self.fronts[j - 1].of(self.h[j - 1], i, i + 1)
                cells[i - front.low] = front.after_reset(stayed, i, i + 1)[0]
            self._take_in(j, front)
            self._hand_up(j, front, skipping)
            self._give_out(front, cells)
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
            below, ut = self.fronts[j - 1].of(self.below, above - 1, high - 1), u[above - 1 : high - 1].mT
            if bias is None:
                torch.bmm(below, ut, out=cells[above - low :])
            else:
                torch.baddbmm(bias[above:high].unsqueeze(1), below, ut, out=cells[above - low :])
        with self.plan.past(self.fronts, self.h, j) as past:
            cells.baddbmm_(past, self.w[low:high].mT)
        self.plan.kernel.forward_(cells)

    def _add_skips(self, front: Front, cells: Tensor, skipping: Tensor) -> None:
        ends = cells[front.skip - front.low :: self.plan.every]
        if self.plan.keep:
            self.before_skip.append(ends.clone())
        ends.add_(skipping, alpha=self.plan.alpha)

    def _hand_up(self, j: int, front: Front, skipping: Tensor | None) -> None:
        """Dropout on the way to the layer above; a dropped block hands up its input."""
        plan, every = self.plan, self.plan.every
        passed = [] if skipping is None else [skipping[(i - front.skip) // every] for i in plan.passing(front)]
        self.below = plan.handed_up(front, self.h[j], passed, self.scratch)
        self.passed.append([value.clone() for value in passed] if plan.keep else [])
        if j + every < len(self.fronts) and (ahead := self.fronts[j + every]).skip < ahead.high:
            starts = front.of(self.below, ahead.skip - every, ahead.high - every, every)
            self.skipping[j + every] = starts.clone() if plan.noisy else starts

    def _take_in(self, j: int, front: Front) -> None:
        """The stack's input and the initial state that the fronts after this one look for here."""
        if self.plan.blocks.same_width and front.start < front.low:
            torch.mul(self.xs[front.d + 1], self.entering, out=self.h[j][0])
        if front.stop > front.high:
            torch.mul(self.h0s[front.d + 1], self.plan.sign, out=self.h[j][-1])

    def _give_out(self, front: Front, cells: Tensor) -> None:
        """The output of the highest layer, and the state of each layer after the last step of each sequence."""
        if front.high == self.plan.layers:
            torch.mul(
                self.below[front.high - 1 - front.start], self.leaving, out=self.outputs[front.d - front.high + 1]
            )
        if front.ends is not None:
            layers, sequences = front.ends
            self.last[layers, sequences] = cells[layers - front.low, sequences] * self.plan.sign
        elif front.d - front.low == self.plan.steps - 1:
            torch.mul(cells[0], self.plan.sign, out=self.last[front.low])

    def _forget(self, j: int) -> None:
        """Frees the front before, which nothing needs any more."""
        if j:
            self.h[j - 1] = self.h0
