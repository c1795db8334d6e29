r"""The stack layer by layer, with a hand-written backward pass: for wide layers.

Weights as large as a cache are best used for all time steps before those of the next layer are touched: one product
:math:`U x` for all steps, one for each weight gradient. Signs and the factor of dropout are treated as in
:mod:`bipolar._rnn.wavefront`, and the same tensors are kept for the backward pass.
"""

from itertools import islice
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
    layers = []
    for i in range(len(weights)):
        steps: list[int] = []
        if noise.dropped is not None and blocks.droppable(i):
            steps = noise.dropped[:, blocks.of(i)].nonzero().flatten().tolist()
        drops = None if noise.output is None else noise.output.layer(i)
        layers.append(Layer(drops, noise.recurrent_mask(i, state[i]), steps))
    plan = Plan(
        blocks,
        layers,
        skip_scale * noise.scale,
        noise.scale,
        kernel,
        x.new_ones(state.size(2)) if sign is None else sign,
        torch.is_grad_enabled(),
        reset,
        [False] * len(x) if reset is None else reset.any(1).tolist(),
        ends,
    )
    parameters = [p for kind in zip(*weights, strict=True) for p in kind]  # all U, all W, all b
    return cast(tuple[Tensor, Tensor], cast(Any, _Scan).apply(x, state, plan, *parameters))


class Layer(NamedTuple):
    """The noise of a layer."""

    #: the dropped outputs, (time, batch, hidden_size)
    drops: Drops | None
    #: the mask on h(t-1), (batch, hidden_size)
    recurrent: Tensor | None
    #: the time steps at which its block is dropped
    dropped: list[int]


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
    #: (time, batch) and (batch); see :class:`bipolar._rnn.stack_pass.StackPass`
    reset: Tensor | None
    #: whether any state is set to zero, by time step
    resets: list[bool]
    ends: Tensor | None

    def conjugated(self, i: int, u: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """The parameters of a layer, with the signs and the scale of dropout in them; or their gradients."""
        sign = self.sign
        columns = sign * self.scale if i else u.new_ones(())
        return u * sign[:, None] * columns, w * sign[:, None] * sign, None if b is None else b * sign

    def passing(self, i: int) -> list[int]:
        """The time steps at which the layer hands up what entered its block."""
        return self.layers[i].dropped if self.blocks.has_skip(i) else []

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
            values[self.passing(i)] = passed
        return values

    def after_reset(self, states: Tensor, t: int) -> Tensor:
        """States before the step t, or gradients on them, with zeros where an episode begins."""
        return states if self.reset is None or not self.resets[t] else states.masked_fill(self.reset[t].unsqueeze(1), 0)


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
                torch.mul(h[-1], plan.sign, out=last[i])
            else:
                torch.mul(h[plan.ends, torch.arange(h.size(1), device=h.device)], plan.sign, out=last[i])
            passed = entered[plan.passing(i)] if plan.passing(i) else None
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
        passed = {i: next(tensors) for i in range(count) if plan.passing(i)}
        need_x, need_h0, _, *needed = ctx.needs_input_grad
        grads: list[Tensor | None] = [None] * (3 * count)
        grad_h0 = torch.empty_like(grad_last)
        grad = (grad_output * (plan.sign * plan.scale)).contiguous()  # on the values that the layer hands up
        entering = None  # the gradient on what entered the block, but for the products
        for i in reversed(range(count)):
            layer, h, (u, w) = plan.layers[i], states[i], weights[2 * i : 2 * i + 2]
            if blocks.has_skip(i):
                entering = torch.zeros_like(grad)
                entering[plan.passing(i)] = grad[plan.passing(i)]
                grad[plan.passing(i)] = 0
            if layer.drops is not None:
                layer.drops.zero_(grad)
            if plan.ends is None:
                grad[-1].addcmul_(grad_last[i], plan.sign)
            else:
                grad[plan.ends, torch.arange(grad.size(1), device=grad.device)] += grad_last[i] * plan.sign
            dz = skips.get(i, h).clone()
            back = _return(plan, i, dz, grad, w, entering if blocks.has_skip(i) else None)
            torch.mul(back, plan.sign, out=grad_h0[i])
            flat = dz.view(-1, dz.size(2))
            # the memory of the gradient on h serves for what the products need
            grad_w = _recurrent_gradient(plan, i, dz, h, h0[i], grad) if needed[count + i] else torch.zeros_like(w)
            below = plan.handed_up(i - 1, states[i - 1], passed.get(i - 1), grad) if i and needed[i] else x
            grad_u = flat.mT @ below.reshape(-1, below.size(2)) if needed[i] else torch.zeros_like(u)
            grads[i::count] = plan.conjugated(i, grad_u, grad_w, flat.sum(0) if ctx.has_bias else None)
            del below, grad
            grad = (flat @ u).view(*dz.shape[:2], u.size(1)) if i or need_x else dz
            if blocks.starts(i) and entering is not None:
                if i:
                    grad += entering
                elif need_x:
                    grad.addcmul_(entering, plan.sign / plan.scale)
                entering = None
        return grad if need_x else None, grad_h0 if need_h0 else None, None, *grads


def _advance(plan: Plan, i: int, z: Tensor, h: Tensor, past: Tensor, w: Tensor, entered: Tensor) -> None:
    """f(W h(t-1) + z(t)) in place of z(t), one time step after the other, and the states with skips added."""
    layer, has_skip = plan.layers[i], plan.blocks.has_skip(i)
    dropped = set(layer.dropped)
    for t, (before_skip, now) in enumerate(zip(z.unbind(0), h.unbind(0), strict=True)):
        past = plan.after_reset(past, t)
        if t in dropped:
            now.copy_(past)
        else:
            before_skip.addmm_(past if layer.recurrent is None else past * layer.recurrent, w.mT)
            plan.kernel.forward_(before_skip)
            if has_skip:
                torch.add(before_skip, entered[t], alpha=plan.alpha, out=now)
        past = now


def _return(plan: Plan, i: int, dz: Tensor, grad: Tensor, w: Tensor, entering: Tensor | None) -> Tensor:
    """The gradient on h(0), and on z in ``dz``, which held f(z); skips take their share into ``entering``."""
    layer, dropped = plan.layers[i], set(plan.layers[i].dropped)
    back = torch.zeros_like(grad[0])  # on h(t), from the steps after t
    for t in reversed(range(len(dz))):
        back += grad[t]
        if t in dropped:
            dz[t].zero_()
        else:
            if entering is not None:
                torch.mul(back, plan.alpha, out=entering[t])
            plan.kernel.backward_(back, dz[t], True)
            torch.mm(dz[t], w, out=back)
            if layer.recurrent is not None:
                back *= layer.recurrent
        back = plan.after_reset(back, t)
    return back


def _recurrent_gradient(plan: Plan, i: int, dz: Tensor, h: Tensor, h0: Tensor, scratch: Tensor) -> Tensor:
    """The gradient of W, of all time steps at once."""
    first, past, recurrent = h0 * plan.sign, h[:-1], plan.layers[i].recurrent
    if plan.reset is not None:
        first = first.masked_fill(plan.reset[0].unsqueeze(1), 0)
        past = past.masked_fill(plan.reset[1:].unsqueeze(2), 0)
    if recurrent is not None:
        first, past = first * recurrent, torch.mul(past, recurrent, out=scratch[1:])
    units = dz.size(2)
    return torch.addmm(dz[0].mT @ first, dz[1:].view(-1, units).mT, past.reshape(-1, units))
