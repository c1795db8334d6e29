"""Random calls of the recurrent stack, against a loop over time and layers."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, cast

import torch
import torch.nn.functional as tF
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import bipolar
from torture.draws import FLOATS, a_pattern, a_tensor, mostly
from torture.watch import TOLERANCE, Refusal, asked, assert_close

STACKED = (
    "belu",
    "brelu",
    "relu",
    "tanh",
    "bgelu",
    "bselu",
    "bprelu",
    "mish",
    "bleaky_relu",
    "bcelu",
    "elu",
    torch.sin,
)


def recurrent(random: Random, directory: Path) -> str:
    """Outputs, last states and gradients, of sequences of several lengths and with episodes in them too."""
    sizes = [mostly(random, (1, 2, 4, 5), (0, -1, 2.5, "2"), 0.02) for _ in range(3)]
    dtype = random.choice(FLOATS)
    options: dict[str, Any] = {
        "nonlinearity": mostly(random, STACKED, ("nothing", 3, nn.ReLU, "crelu")),
        "bias": random.random() < 0.7,
        "batch_first": random.random() < 0.3,
        "skip_every": mostly(random, (None, 1, 2, 4), (0, 1.5, "2")),
        "skip_scale": mostly(random, (0.99, 1.0, 0.0), (float("nan"), "1")),
        "gamma": mostly(random, (0.5, 0.2, 0.0, 1.0), (1.5, float("nan"), "1")),
        "pattern": a_pattern(random),
        "backend": mostly(random, ("auto", "auto", "auto", "reference"), ("scan", "wavefront", "fast", None), 0.3),
        "recompute": random.random() < 0.2,
    }
    rnn = asked(lambda: bipolar.StackedRNN(*cast(Any, sizes), dtype=dtype, **options), draws=True)
    if isinstance(rnn, Refusal):
        return f"made: {rnn}"
    rnn.eval()
    steps, batch = random.choice((1, 2, 5)), mostly(random, (1, 3), (0,))
    shape = (batch, steps, sizes[0]) if options["batch_first"] else (steps, batch, sizes[0])
    x: Any = a_tensor(random, shape, dtype) if random.random() < 0.9 else a_tensor(random)
    state = mostly(random, (None, torch.randn(sizes[2], batch, sizes[1], dtype=dtype)), (torch.ones(2), torch.ones(())))
    given, known = _sequences(random, steps, batch, rnn.batch_first)
    padded = x
    if "lengths" in known and not x.is_meta and x.shape == shape and batch and random.random() < 0.5:
        x = pack_padded_sequence(x, given.pop("lengths"), rnn.batch_first, enforce_sorted=False)
        if "reset" in known:  # of the time steps of the longest
            given["reset"] = given["reset"].narrow(int(rnn.batch_first), 0, len(x.batch_sizes))
    untouched = [rnn, *(value for value in (x, state, *given.values()) if isinstance(value, Tensor))]
    answer = asked(lambda: rnn(x, state, **given), untouched, lambda: _slow(rnn, padded, state, known))
    if isinstance(answer, Refusal) or padded.is_meta:
        return str(answer) if isinstance(answer, Refusal) else "right"
    output, last = answer
    if isinstance(output, PackedSequence):
        total = padded.size(int(rnn.batch_first))
        output = pad_packed_sequence(output, rnn.batch_first, total_length=total)[0]
    expected, expected_last = _slow(rnn, padded, state, known)
    near = TOLERANCE[dtype] * expected.size(int(rnn.batch_first and padded.ndim == 3)) * rnn.num_layers
    assert_close(output.detach(), expected.detach(), "output", near)  # rounding adds up
    assert_close(last.detach(), expected_last.detach(), "state", near)
    if dtype == torch.float64 and expected.isfinite().all() and expected.numel():
        parameters = list(rnn.parameters())
        ours, theirs = (
            torch.autograd.grad(made.square().sum(), parameters, allow_unused=True, materialize_grads=True)
            for made in (output, expected)
        )
        for mine, its in zip(ours, theirs, strict=True):
            assert_close(mine, its, "gradient", 1e-8)
    return "right"


def _sequences(random: Random, steps: int, batch: int, batch_first: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Lengths and a reset, or neither, as the stack takes them; and with time first, where they are right."""
    given: dict[str, Any] = {}
    known: dict[str, Tensor] = {}
    if random.random() < 0.3:
        lengths = torch.tensor([random.randint(1, steps) for _ in range(batch)], dtype=torch.int64)
        given["lengths"] = mostly(random, (lengths,), (lengths * 0, lengths + steps, lengths.float(), "3", None))
        if given["lengths"] is lengths:
            known["lengths"] = lengths
    if random.random() < 0.3:
        reset = torch.tensor([[random.random() < 0.3 for _ in range(batch)] for _ in range(steps)]).view(steps, batch)
        whole = reset.mT if batch_first else reset
        given["reset"] = mostly(random, (whole,), (whole.float(), whole[:-1, :-1], whole.unsqueeze(0), [True]))
        if given["reset"] is whole:
            known["reset"] = reset
    return given, known


def _slow(
    rnn: bipolar.StackedRNN, x: Tensor, state: Tensor | None, known: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """The formula of the stack, cell by cell."""
    batched = x.ndim == 3
    xs = x.unsqueeze(1) if not batched else x.transpose(0, 1) if rnn.batch_first else x
    shape = (rnn.num_layers, xs.size(1), rnn.hidden_size)
    h = list((torch.zeros(shape, dtype=x.dtype) if state is None else state.view(shape)).unbind())
    last, lengths, reset = h.copy(), known.get("lengths"), known.get("reset")
    outputs = []
    every = rnn.skip_every
    for t, x_t in enumerate(xs.unbind()):
        going = torch.ones(len(x_t), 1, dtype=torch.bool) if lengths is None else (t < lengths).unsqueeze(1)
        if reset is not None:
            h = [torch.where(reset[t].unsqueeze(1), 0.0, part) for part in h]
        below = torch.where(going, x_t, 0.0)
        skip = below
        for i, (u, w, b) in enumerate(rnn.layers()):
            if every and i % every == 0:
                skip = below
            h[i] = rnn.activation(tF.linear(below, u, b) + tF.linear(h[i], w))
            if every and (i + 1) % every == 0 and skip.size(-1) == rnn.hidden_size:
                h[i] = h[i] + rnn.skip_scale * skip
            below = h[i]
        outputs.append(torch.where(going, below, 0.0))
        last = [torch.where(going, now, before) for now, before in zip(h, last, strict=True)]
    output, states = torch.stack(outputs), torch.stack(last)
    if not batched:
        return output.squeeze(1), states.squeeze(1)
    return output.transpose(0, 1) if rnn.batch_first else output, states
