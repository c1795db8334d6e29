r"""The stack layer by layer, with a hand-written backward pass: for wide layers.

Weights as large as a cache are best used for all time steps before those of the next layer are touched: one product
:math:`U x` for all steps, one for each weight gradient. Signs and the factor of dropout are treated as in
:mod:`bipolar._rnn.wavefront`, and the same tensors are kept for the backward pass.

Values of all time steps are rows of one matrix, those of a step after those of the step before, as in a
``PackedSequence``. Where sequences are sorted, longest first, a step has rows only for those that last, so that no
padding is computed.
"""

from itertools import accumulate, islice
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from bipolar._activations.kernels import Kernel
from bipolar._rnn.blocks import Blocks
from bipolar._rnn.drops import Drops
from bipolar._rnn.handwritten import refuse_unsupported_backward
from bipolar._rnn.stack_pass import StackPass


def run(task: StackPass, *, kernel: Kernel, sign: Tensor | None) -> tuple[Tensor, Tensor]:
    """:func:`bipolar._rnn.reference.run` for the activation S f(S x), with f as ``kernel`` and the diagonal of S as
    ``sign`` (None for a plain activation)."""
    x, state, weights, blocks, skip_scale, noise, reset, ends = task
    time, batch, units = len(x), x.size(1), state.size(2)
    sizes, kept = [batch] * time, None
    if ends is not None and skips_padding(ends):
        within = torch.arange(time, device=x.device).unsqueeze(1) <= ends
        sizes, kept = within.sum(1).tolist(), within.flatten().nonzero().squeeze(1)
    starts = list(accumulate(sizes, initial=0))
    layers = []
    for i in range(len(weights)):
        steps: list[int] = []
        if noise.dropped is not None and blocks.droppable(i):
            steps = noise.dropped[:, blocks.of(i)].nonzero().flatten().tolist()
        drops = None if noise.output is None else noise.output.layer(i)
        if drops is not None and kept is not None:
            drops = drops.picked(kept, units)
        rows = [row for t in steps for row in range(starts[t], starts[t + 1])] if blocks.has_skip(i) else []
        layers.append(Layer(drops, noise.recurrent_mask(i, state[i]), steps, rows))
    if reset is not None:
        reset = _picked(reset.reshape(-1, 1), kept)
    plan = Plan(
        blocks,
        layers,
        skip_scale * noise.scale,
        noise.scale,
        kernel,
        x.new_ones(units) if sign is None else sign,
        torch.is_grad_enabled(),
        sizes,
        reset,
        [None] * time if reset is None else [here if here.any() else None for here in reset.split(sizes)],
        None if ends is None else torch.tensor(starts, device=x.device)[ends] + torch.arange(batch, device=x.device),
    )
    parameters = [p for kind in zip(*weights, strict=True) for p in kind]  # all U, all W, all b
    x = _picked(x.flatten(0, 1), kept)
    output, last = cast(tuple[Tensor, Tensor], cast(Any, _Scan).apply(x, state, plan, *parameters))
    if kept is not None:
        output = output.new_zeros(time * batch, units).index_copy(0, kept, output)
    return output.view(time, batch, units), last


def skips_padding(ends: Tensor) -> bool:
    """Whether sequences with these last steps are sorted, longest first."""
    return bool((ends.diff() <= 0).all())


def _picked(tensor: Tensor, rows: Tensor | None) -> Tensor:
    return tensor if rows is None else tensor.index_select(0, rows)


class Layer(NamedTuple):
    """The noise of a layer."""

    #: the dropped outputs, (rows, hidden_size)
    drops: Drops | None
    #: the mask on h(t-1), (batch, hidden_size)
    recurrent: Tensor | None
    #: the time steps at which its block is dropped
    dropped: list[int]
    #: the rows at which it hands up what entered its block
    passing: list[int]


class Plan(NamedTuple):
    """Everything that a pass layer by layer depends on, but input, state and parameters."""

    blocks: Blocks
    layers: list[Layer]
    #: the factor of a skip: skip_scale, and the factor of dropout
    alpha: float
    #: the factor 1 / (1 - p) of dropout
    scale: float
    kernel: Kernel
    sign: Tensor
    #: whether a backward pass may follow
    keep: bool
    #: the number of rows, which is that of sequences, of each time step
    sizes: list[int]
    #: whether a state is set to zero before a step, (rows, 1), and by time step; None for never
    reset: Tensor | None
    resets: list[Tensor | None]
    #: the row of the last step of each sequence, (batch); None for those of the last time step
    ends: Tensor | None

    def conjugated(self, i: int, u: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """The parameters of a layer, with the signs and the scale of dropout in them; or their gradients."""
        sign = self.sign
        columns = sign * self.scale if i else u.new_ones(())
        return u * sign[:, None] * columns, w * sign[:, None] * sign, None if b is None else b * sign

    def handed_up(self, i: int, h: Tensor, passed: Tensor | None, out: Tensor | None = None) -> Tensor:
        """The values that the layer above sees: the states, but for dropout and for dropped blocks.

        They are computed for the forward pass and once more for the backward pass, to keep the states alone.
        """
        drops = self.layers[i].drops
        if drops is None and passed is None:
            return h
        values = h.clone() if out is None else out.copy_(h)
        if drops is not None:
            drops.zero_(values)
        if passed is not None:
            values[self.layers[i].passing] = passed
        return values

    def after_reset(self, states: Tensor, t: int) -> Tensor:
        """States before the step t, with zeros where an episode begins."""
        reset = self.resets[t]
        return states if reset is None else states.masked_fill(reset, 0)


class _Scan(torch.autograd.Function):
    """The outputs of the highest layer and the last states of all, from all U, all W and all b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, h0: Tensor, plan: Plan, *parameters: Tensor | None) -> tuple[Tensor, Tensor]:
        blocks, count = plan.blocks, len(plan.layers)
        last, saved, skips, passings = torch.empty_like(h0), [], [], []
        entered = x * (plan.sign / plan.scale) if blocks.same_width else x  # what entered the block
        below = x
        weights = []
        for i in range(count):
            u, w, b = plan.conjugated(i, *cast(Any, parameters[i::count]))
            if blocks.starts(i) and i:
                entered = below
            before_skip = torch.nn.functional.linear(below, u, b)
            h = torch.empty_like(before_skip) if blocks.has_skip(i) else before_skip
            _advance(plan, i, before_skip, h, h0[i] * plan.sign, w, entered)
            if plan.ends is None:
                torch.mul(h[-len(last[i]) :], plan.sign, out=last[i])
            else:
                torch.mul(h[plan.ends], plan.sign, out=last[i])
            passed = entered[plan.layers[i].passing] if plan.layers[i].passing else None
            below = plan.handed_up(i, h, passed)
            if plan.keep:
                weights += [u, w]
                saved.append(h)
                skips += [before_skip] if blocks.has_skip(i) else []
                passings += [] if passed is None else [passed]
        if plan.keep:
            ctx.save_for_backward(x, h0, *weights, *saved, *skips, *passings)
        ctx.plan, ctx.has_bias = plan, parameters[-1] is not None
        return below * (plan.sign * plan.scale), last

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        refuse_unsupported_backward(grad_output)
        plan: Plan = ctx.plan
        blocks, count = plan.blocks, len(plan.layers)
        x, h0, *saved = ctx.saved_tensors
        tensors = iter(saved)
        weights = list(islice(tensors, 2 * count))
        states = list(islice(tensors, count))
        skips = {i: next(tensors) for i in range(count) if blocks.has_skip(i)}
        passed = {i: next(tensors) for i in range(count) if plan.layers[i].passing}
        need_x, need_h0, _, *needed = ctx.needs_input_grad
        grads: list[Tensor | None] = [None] * (3 * count)
        grad_h0 = torch.empty_like(grad_last)
        grad = (grad_output * (plan.sign * plan.scale)).contiguous()  # on the values that the layer hands up
        entering = None  # the gradient on what entered the block, but for the products
        for i in reversed(range(count)):
            layer, h, (u, w) = plan.layers[i], states[i], weights[2 * i : 2 * i + 2]
            if blocks.has_skip(i):
                entering = torch.zeros_like(grad)
                entering[layer.passing] = grad[layer.passing]
                grad[layer.passing] = 0
            if layer.drops is not None:
                layer.drops.zero_(grad)
            if plan.ends is None:
                grad[-len(grad_last[i]) :].addcmul_(grad_last[i], plan.sign)
            else:
                grad[plan.ends] += grad_last[i] * plan.sign
            dz = skips.get(i, h).clone()
            back = torch.zeros_like(grad_last[i])
            _return(plan, i, back, dz, grad, w, entering if blocks.has_skip(i) else None)
            torch.mul(back, plan.sign, out=grad_h0[i])
            # the memory of the gradient on h serves for what the products need
            grad_w = _recurrent_gradient(plan, i, dz, h, h0[i], grad) if needed[count + i] else torch.zeros_like(w)
            below = plan.handed_up(i - 1, states[i - 1], passed.get(i - 1), grad) if i and needed[i] else x
            grad_u = dz.mT @ below if needed[i] else torch.zeros_like(u)
            grads[i::count] = plan.conjugated(i, grad_u, grad_w, dz.sum(0) if ctx.has_bias else None)
            del below, grad
            grad = dz @ u if i or need_x else dz
            if blocks.starts(i) and entering is not None:
                if i:
                    grad += entering
                elif need_x:
                    grad.addcmul_(entering, plan.sign / plan.scale)
                entering = None
        return grad if need_x else None, grad_h0 if need_h0 else None, None, *grads


def _first(tensor: Tensor, count: int) -> Tensor:
    """The first rows: mostly all, for which a view would cost as much as a small operation."""
    return tensor if len(tensor) == count else tensor[:count]


def _advance(plan: Plan, i: int, z: Tensor, h: Tensor, past: Tensor, w: Tensor, entered: Tensor) -> None:
    """f(W h(t-1) + z(t)) in place of z(t), one time step after the other, and the states with skips added."""
    layer, dropped = plan.layers[i], set(plan.layers[i].dropped)
    rows = zip(*(tensor.split(plan.sizes) for tensor in (z, h, entered)), strict=True)
    for t, (before_skip, now, skipping) in enumerate(rows):
        past = plan.after_reset(_first(past, len(now)), t)
        if t in dropped:
            now.copy_(past)
        else:
            before_skip.addmm_(past if layer.recurrent is None else past * _first(layer.recurrent, len(now)), w.mT)
            plan.kernel.forward_(before_skip)
            if plan.blocks.has_skip(i):
                torch.add(before_skip, skipping, alpha=plan.alpha, out=now)
        past = now


def _return(plan: Plan, i: int, back: Tensor, dz: Tensor, grad: Tensor, w: Tensor, entering: Tensor | None) -> None:
    """The gradient on h(0) in ``back``, which begins with zeros, and on z in ``dz``, which held f(z); skips take their
    share into ``entering``."""
    layer, dropped = plan.layers[i], set(plan.layers[i].dropped)
    rows = [tensor.split(plan.sizes) for tensor in (dz, grad, dz if entering is None else entering)]
    for t, (here, given, skipping) in reversed(list(enumerate(zip(*rows, strict=True)))):
        after = _first(back, len(here))  # on h(t), from the steps after t
        after += given
        if t in dropped:
            here.zero_()
        else:
            if entering is not None:
                torch.mul(after, plan.alpha, out=skipping)
            plan.kernel.backward_(after, here, True)
            torch.mm(here, w, out=after)
            if layer.recurrent is not None:
                after *= _first(layer.recurrent, len(here))
        if (reset := plan.resets[t]) is not None:
            after.masked_fill_(reset, 0)


def _recurrent_gradient(plan: Plan, i: int, dz: Tensor, h: Tensor, h0: Tensor, scratch: Tensor) -> Tensor:
    """The gradient of W, of all time steps at once."""
    recurrent, batch = plan.layers[i].recurrent, len(h0)
    first, past = h0 * plan.sign, h[: len(h) - batch]
    if plan.sizes[-1] < batch:  # the states before, of the sequences that last
        past = scratch[batch:]
        for now, before in zip(past.split(plan.sizes[1:]), h.split(plan.sizes), strict=False):
            torch.mul(before[: len(now)], 1 if recurrent is None else recurrent[: len(now)], out=now)
    elif recurrent is not None:
        past = torch.mul(past.view(-1, *h0.shape), recurrent, out=scratch[batch:].view(-1, *h0.shape)).view_as(past)
    if recurrent is not None:
        first *= recurrent
    if plan.reset is not None:
        first, past = (
            part.masked_fill(reset, 0) for part, reset in ((first, plan.reset[:batch]), (past, plan.reset[batch:]))
        )
    return torch.addmm(dz[:batch].mT @ first, dz[batch:].mT, past)
