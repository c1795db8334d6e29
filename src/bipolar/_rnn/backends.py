"""The choice of a backend for a pass, and recomputation in the backward pass."""

import math
from collections.abc import Callable
from functools import partial
from itertools import chain
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

#: From this width on, a layer at a time is faster than a diagonal at a time: its own products keep all cores busy.
WIDE = 512
#: On a CPU, fronts with fewer cells on average do not pay for their operations.
CELLS = 6
#: A front reads the weights of its layers for every time step, while those of one layer stay in a cache of a CPU. Where
#: few sequences share the reading, that costs more than the operations saved: for layers of this width, and where all
#: weights together outgrow the last cache.
FEW, BROAD, CACHED = 64, 256, 32 << 20
#: A layer at a time, padding can be skipped; that pays where no more than this share of a batch is not padding.
SHORT = 2 / 3

_Run: TypeAlias = "partial[tuple[Tensor, Tensor]]"


def run(
    task: StackPass, activation: Callable[[Tensor], Tensor], backend: Backend, recompute: bool
) -> tuple[Tensor, Tensor]:
    """The outputs of the highest layer and the last states of all; see :func:`bipolar._rnn.reference.run`."""
    chosen = _choose(task, activation, backend)
    # transforms of torch.func cannot recompute, and a trace would not
    if recompute and torch.is_grad_enabled() and is_eager():
        return _by_groups(task, chosen)
    return chosen(task)


def _choose(task: StackPass, activation: Callable[[Tensor], Tensor], backend: Backend) -> _Run:
    kernel = kernel_of(activation)
    if backend == "reference" or kernel is None or not is_eager(task.input, task.state, *chain(*task.weights)):
        return partial(reference.run, f=activation)
    layers, batch, units = task.state.shape
    by_layer = backend == "scan"
    if backend == "auto":
        x = task.input
        by_layer = is_faster_by_layer(len(x), layers, units, batch, x.element_size(), x.device.type)
        if task.ends is not None and scan.skips_padding(task.ends):
            by_layer |= int((task.ends + 1).sum()) <= SHORT * len(x) * batch
    fast = scan.run if by_layer else wavefront.run
    return partial(fast, kernel=kernel, sign=sign_of(activation, units, task.input))


def is_faster_by_layer(steps: int, layers: int, units: int, batch: int, item_size: int, device: str) -> bool:
    """The choice between the fast backends, from the sizes of a pass: benchmarks/grid.py shows what it loses."""
    if device != "cpu":
        return units >= WIDE
    cells = steps * layers / (steps + layers - 1)
    wide = units >= (BROAD if batch <= FEW else WIDE)
    return wide or cells < CELLS or (batch <= FEW and 2 * layers * units**2 * item_size > CACHED)


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
