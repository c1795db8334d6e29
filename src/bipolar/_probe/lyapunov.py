r"""The largest Lyapunov exponent of a recurrent layer along a sequence: how a small difference in its state fares.

With the Jacobian :math:`J_t` of the state after step t by the state before, and a random direction :math:`v_0`,

.. math::
    v_t = J_t v_{t-1} / \lVert J_t v_{t-1} \rVert, \qquad
    \lambda = \frac{1}{T - T_0} \sum_{t > T_0} \log \lVert J_t v_{t-1} \rVert

in which the first half of the steps, :math:`T_0`, lets state and direction settle. Below 0 a difference dies out, and
the state forgets where it came from; above 0 it grows, and the start is chaotic. The products with :math:`J_t` are
derivatives in forward mode, one for each step; the Jacobian itself is never made.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from bipolar._rnn import StackedRNN
from bipolar._rnn.autocast import without_autocast
from bipolar._rnn.sequences import Sequences
from bipolar._tools.restoring import evaluating

#: The layers that have an exponent.
RECURRENT = (StackedRNN, nn.RNN, nn.LSTM, nn.GRU)

#: Exponents within this of 0, 5 % a step, are neither contraction nor chaos.
EDGE = 0.05

#: The parts of a state, each (layers, batch, units): h, and for an LSTM also c.
_State: TypeAlias = tuple[Tensor, ...]


def lyapunov(rnn: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float | None:
    """The exponent per time step, on average over the sequences, for a call of a recurrent layer without its dropout.

    A reset sets the state to zero, and leaves the direction. NaN if the state grows beyond all numbers. None for
    another layer, or one with a forward of its own; for a bidirectional one, whose states do not follow each other; for
    a batch without sequences; and where the activation has no derivative in forward mode.
    """
    known = any(isinstance(rnn, kind) and type(rnn).forward is kind.forward for kind in RECURRENT)
    if not known or getattr(rnn, "bidirectional", False):
        return None
    given = dict(zip(("input", "state"), args, strict=False)) | kwargs
    try:
        with torch.inference_mode(False), torch.no_grad(), evaluating(rnn), _differentiable():
            return _exponent(rnn, given)
    except NotImplementedError:  # from forward mode, if a function of the user does not have it
        return None


def _exponent(rnn: Any, given: dict[str, Any]) -> float | None:
    like: Tensor = rnn.weight_hh_l0
    options = given.get("lengths"), given.get("reset")
    sequences = Sequences(given["input"], *options, rnn.input_size, rnn.batch_first)
    x = sequences.input.detach().to(like.dtype, copy=True)
    if not x.size(1):
        return None
    state = _first_state(rnn, sequences, given.get("state", given.get("hx")), like)
    growth, direction = [], _random_like(state)
    with without_autocast(x):
        for t in range(len(x)):
            if sequences.reset is not None:
                state = tuple(part.masked_fill(sequences.reset[t].unsqueeze(1), 0) for part in state)
            direction = _scaled(direction, _norms(direction))
            state, direction = _step(rnn, x[t], state, direction)
            growth.append(_norms(direction))
    return _mean_of_late_steps(torch.stack(growth).log(), sequences.ends)


def _mean_of_late_steps(rates: Tensor, ends: Tensor | None) -> float:
    """The mean of (time, batch) over the second half of each sequence, and then over the sequences."""
    steps, batch = rates.shape
    lengths = torch.full((batch,), steps, device=rates.device) if ends is None else ends + 1
    time = torch.arange(steps, device=rates.device).unsqueeze(1)
    late = (time >= lengths // 2) & (time < lengths)
    return float((rates.double().masked_fill(~late, 0).sum(0) / late.sum(0)).mean())


def _first_state(rnn: Any, sequences: Sequences, given: Any, like: Tensor) -> _State:
    if given is not None:
        parts = given if isinstance(given, tuple) else (given,)
        batches = (part.detach() if sequences.batched else part.detach().unsqueeze(1) for part in parts)
        return tuple(sequences.ordered(part.to(like.dtype, copy=True)) for part in batches)
    widths = [getattr(rnn, "proj_size", 0) or rnn.hidden_size, rnn.hidden_size][: 1 + isinstance(rnn, nn.LSTM)]
    return tuple(like.new_zeros(rnn.num_layers, sequences.input.size(1), width) for width in widths)


def _step(rnn: Any, x: Tensor, state: _State, direction: _State) -> tuple[_State, _State]:
    """The state after one time step for x of shape (batch, input_size), and its derivative along the direction."""
    with forward_ad.dual_level():
        pairs = tuple(forward_ad.make_dual(part, tangent) for part, tangent in zip(state, direction, strict=True))
        last = rnn.forward(x.unsqueeze(int(rnn.batch_first)), pairs if isinstance(rnn, nn.LSTM) else pairs[0])[1]
        made = [forward_ad.unpack_dual(part) for part in (last if isinstance(last, tuple) else (last,))]
        return tuple(part.primal for part in made), tuple(_or_zero(part.tangent, part.primal) for part in made)


def _or_zero(tangent: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if tangent is None else tangent


def _random_like(state: _State) -> _State:
    """The same direction in every call; the global generator is not touched."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(part.shape, generator=generator).to(part) for part in state)


def _norms(direction: _State) -> Tensor:
    """The norm of each sequence's direction, over all layers, units and parts; half precision has no such squares."""
    parts = [part if part.dtype == torch.float64 else part.float() for part in direction]
    return torch.stack([part.square().sum((0, 2)) for part in parts]).sum(0).sqrt()


def _scaled(direction: _State, norms: Tensor) -> _State:
    """The direction with a norm of 1; one that has died out stays zero."""
    safe = norms.where(norms > 0, 1.0).unsqueeze(1)
    return tuple((part / safe).to(part.dtype) for part in direction)


@contextlib.contextmanager
def _differentiable() -> Iterator[None]:
    """Switches the fused kernels off that have no derivative in forward mode."""
    onednn: Any = torch.backends.mkldnn
    before = onednn.enabled
    onednn.enabled = False
    try:
        with torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        onednn.enabled = before


def describe(name: str, exponent: float) -> str:
    """A sentence on an exponent."""
    number = f"(Lyapunov exponent {exponent:.3g})"
    if math.isnan(exponent):
        return f"{name!r} explodes: its state grows beyond all numbers within a sequence, so that it has no exponent"
    if exponent == -math.inf:
        return f"{name!r} forgets its state within a sequence {number}"
    if exponent > EDGE:
        return f"{name!r} is chaotic: a small difference in its state grows by {math.exp(exponent):.3g} a step {number}"
    if exponent < -EDGE:
        memory = math.ceil(math.log(100) / -exponent)
        return (
            f"{name!r} contracts: a small difference in its state shrinks by {math.exp(-exponent):.3g} a step, to a "
            f"hundredth within {memory} steps {number}"
        )
    return f"{name!r} is at the edge: a small difference in its state keeps about its size {number}"
