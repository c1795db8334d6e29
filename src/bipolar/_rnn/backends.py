"""The choice of a backend for a pass, and recomputation in the backward pass."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bipolar._activations.recognition import kernel_of
from bipolar._rnn import reference, scan, wavefront
from bipolar._rnn.handwritten import is_eager
from bipolar._rnn.nonlinearity import sign_of
from bipolar._rnn.stack_pass import StackPass

Backend: TypeAlias = Literal["auto", "reference", "scan", "wavefront"]

#: From this width on, a layer at a time is faster than a diagonal at a time: benchmarks/rnn.py.
WIDE = 512
#: A diagonal reads all weights for every time step. Where they outgrow the caches of a CPU, and few sequences share the
#: reading, a layer at a time is faster, too.
CACHED, FEW = 8 << 20, 32

_Run: TypeAlias = "partial[tuple[Tensor, Tensor]]"


def run(
    task: StackPass, activation: Callable[[Tensor], Tensor], backend: Backend, recompute: bool
) -> tuple[Tensor, Tensor]:
    """The outputs of the highest layer and the last states of all; see :func:`bipolar._rnn.reference.run`."""
    chosen = _choose(task, activation, backend)
    # transforms of torch.func cannot recompute
    if recompute and torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active():
        return _by_groups(task, chosen)
    return chosen(task)


def _choose(task: StackPass, activation: Callable[[Tensor], Tensor], backend: Backend) -> _Run:
    kernel = kernel_of(activation)
    if backend == "reference" or kernel is None or not is_eager(task.input, task.state, *task.weights[0]):
        return partial(reference.run, f=activation)
    units = task.state.size(2)
    by_layer = _is_faster_by_layer(task) if backend == "auto" else backend == "scan"
    fast = scan.run if by_layer else wavefront.run
    if torch.compiler.is_compiling():
        # a graph break, as for nn.RNN: a deep stack unrolled over time takes minutes to compile
        fast = torch.compiler.disable(fast)
    return partial(fast, kernel=kernel, sign=sign_of(activation, units, task.input))


def _is_faster_by_layer(task: StackPass) -> bool:
    _, batch, units = task.state.shape
    size = sum(tensor.nbytes for u, w, _ in task.weights for tensor in (u, w))
    return units >= WIDE or (task.input.device.type == "cpu" and batch <= FEW and size > CACHED)


def _by_groups(task: StackPass, chosen: _Run) -> tuple[Tensor, Tensor]:
    """Keeps only the input of each group of blocks; the backward pass computes the group again."""
    every, layers = task.blocks.every or 1, len(task.weights)
    size = every * max(1, round(math.sqrt(layers) / every))
    draws = chosen.func is reference.run  # the fast backends draw no random numbers, an activation of the user may
    x, states = task.input, []
    for low in range(0, layers, size):
        group = task.within(low, min(low + size, layers), x)
        x, last = checkpoint(chosen, group, use_reentrant=False, preserve_rng_state=draws)
        states.append(last)
    return x, torch.cat(states)
