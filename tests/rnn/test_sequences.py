"""Sequences of different length, packed sequences and episodes: each gives what it gives alone."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import bipolar
from bipolar._rnn import reference
from bipolar._rnn.drops import Dice, Drops
from bipolar._rnn.noise import SILENCE, Noise, Outputs, draw_noise, dropped_out, layers_at
from bipolar._rnn.stack_pass import StackPass
from tests.helpers.stacks import FAST, NOISE, RARE, gradients, waving

BACKENDS: Any = ["reference", "scan", "wavefront"]


def noise_of(rnn: bipolar.StackedRNN, x: Tensor) -> tuple[Tensor, Noise]:
    """The input after dropout and the noise of a pass in training with seed 1."""
    dice = Dice(torch.Generator().manual_seed(1), x.device)
    x = dropped_out(x, rnn.dropout, dice)
    rates = {name: getattr(rnn, name) for name in NOISE}
    return x, draw_noise(x, rnn.num_layers, rnn.hidden_size, rnn.blocks.count, dice, **rates)


def part(noise: Noise, shape: tuple[int, ...], b: int, start: int, stop: int) -> Noise:
    """The noise of one sequence of the batch, from one time step up to another, for states of this shape."""
    output, length, layers = None, stop - start, shape[0]
    if noise.output is not None:
        fronts = []
        for d in range(layers + length - 1):
            cells = [noise.output.at(i, start + d - i) for i in layers_at(d, layers, length)]
            masks = [cell.zeroed(torch.ones(shape[1:]))[b : b + 1] == 0 for cell in cells]
            fronts.append(Drops(shape[2], torch.stack(masks), None))
        output = Outputs(layers, length, fronts)
    recurrent = None
    if noise.recurrent is not None:
        masks = [noise.recurrent.rows(i, i + 1).zeroed(torch.ones(shape[1:])) == 0 for i in range(shape[0])]
        recurrent = Drops(shape[2], torch.stack(masks)[:, b : b + 1].contiguous(), None)
    dropped = None if noise.dropped is None else noise.dropped[start:stop]
    return Noise(output, noise.scale, recurrent, noise.recurrent_scale, dropped)


def episodes(reset: Tensor, length: int) -> Iterator[tuple[int, int]]:
    """First step of each episode of a sequence, and of what follows it."""
    starts = sorted({0, *reset[:length].nonzero().flatten().tolist()})
    return zip(starts, [*starts[1:], length], strict=True)


def one_by_one(
    rnn: bipolar.StackedRNN, x: Tensor, state: Tensor, lengths: list[int], reset: Tensor
) -> tuple[Tensor, Tensor]:
    """Output and last states, by a pass of the reference for each episode of each sequence."""
    steps, outputs, lasts = len(x), [], []
    x, noise = noise_of(rnn, x) if rnn.training else (x, SILENCE)
    for b, length in enumerate(lengths):
        h, pieces = state[:, b : b + 1], []
        for start, stop in episodes(reset[:, b], length):
            h = torch.zeros_like(h) if reset[start, b] else h
            own = part(noise, tuple(state.shape), b, start, stop)
            task = StackPass(x[start:stop, b : b + 1], h, rnn.layers(), rnn.blocks, rnn.skip_scale, own)
            piece, h = reference.run(task, f=rnn.activation)
            pieces.append(piece)
        outputs.append(torch.cat((*pieces, x.new_zeros(steps - length, 1, rnn.hidden_size))))
        lasts.append(h)
    return torch.cat(outputs, dim=1), torch.cat(lasts, dim=1)


def all_gradients(rnn: bipolar.StackedRNN, x: Tensor, state: Tensor, results: tuple[Any, ...]) -> tuple[Tensor, ...]:
    loss = sum(waving(result) for result in results)
    return torch.autograd.grad(loss, [x, state, *rnn.parameters()], allow_unused=True, materialize_grads=True)


def assert_equal(ours: Any, theirs: Any) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * (1 + float(b.detach().abs().max())))


@settings(max_examples=100)
@given(
    depth=st.integers(1, 12),
    width=st.integers(1, 8),
    inputs=st.integers(0, 3),
    time=st.integers(1, 10),
    lengths=st.lists(st.integers(1, 10), min_size=2, max_size=4),
    resets=st.sampled_from([None, 0.1, 0.5]),
    form=st.sampled_from(["whole", "padded", "packed"]),
    nonlinearity=st.sampled_from(FAST),
    skip_every=st.sampled_from([None, 1, 2, 4]),
    noise=st.sets(st.sampled_from(sorted(NOISE))),
    rates=st.sampled_from([NOISE, RARE]),
    options=st.fixed_dictionaries({"batch_first": st.booleans(), "recompute": st.booleans(), "bias": st.booleans()}),
    backend=st.sampled_from(BACKENDS),
)
def test_each_sequence_and_episode_gives_what_it_gives_alone(
    depth: int,
    width: int,
    inputs: int,
    time: int,
    lengths: list[int],
    resets: float | None,
    form: str,
    nonlinearity: str,
    skip_every: int | None,
    noise: set[str],
    rates: dict[str, float],
    options: dict[str, Any],
    backend: Any,
) -> None:
    torch.manual_seed(depth)
    options |= {name: rates[name] for name in noise if skip_every or name != "block_dropout"}
    rnn = bipolar.StackedRNN(
        inputs or width, width, depth, nonlinearity, skip_every=skip_every, dtype=torch.float64, **options
    )
    batch, lengths = len(lengths), [time if form == "whole" else min(length, time) for length in lengths]
    time = max(lengths) if form == "packed" else time
    x = torch.randn(time, batch, inputs or width, dtype=torch.float64, requires_grad=True)
    state = torch.randn(depth, batch, width, dtype=torch.float64, requires_grad=True)
    reset = torch.rand(time, batch) < (resets or 0.0)
    order = torch.arange(batch)  # that of the noise: longest first in a packed batch
    if form == "packed":
        order = torch.tensor(lengths).sort(descending=True).indices
    in_order = one_by_one(rnn, x[:, order], state[:, order], [lengths[b] for b in order], reset[:, order])
    expected = tuple(result[:, order.argsort()] for result in in_order)
    rnn.backend = backend

    def flipped(tensor: Tensor) -> Tensor:
        return tensor.transpose(0, 1) if rnn.batch_first else tensor

    given: Any = flipped(x)
    if form == "packed":
        given = pack_padded_sequence(given, torch.tensor(lengths), rnn.batch_first, enforce_sorted=False)
    output, last = rnn(
        given,
        state,
        lengths=lengths if form == "padded" else None,
        reset=None if resets is None else flipped(reset),
        generator=torch.Generator().manual_seed(1),
    )
    found = pad_packed_sequence(output)[0] if form == "packed" else flipped(output), last
    assert_equal(found, expected)
    assert_equal(all_gradients(rnn, x, state, found), all_gradients(rnn, x, state, expected))


@given(
    nonlinearity=st.sampled_from(["tanh", "relu"]),
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    enforce_sorted=st.booleans(),
    batch_first=st.booleans(),
    start=st.booleans(),
    backend=st.sampled_from(BACKENDS),
)
def test_packed_sequences_go_in_and_out_as_in_torch(
    nonlinearity: str, lengths: list[int], enforce_sorted: bool, batch_first: bool, start: bool, backend: Any
) -> None:
    torch.manual_seed(len(lengths))
    lengths = sorted(lengths, reverse=True) if enforce_sorted else lengths
    options: dict[str, Any] = {"skip_every": None, "batch_first": batch_first, "dtype": torch.float64}
    ours = bipolar.StackedRNN(3, 4, 3, nonlinearity, backend=backend, **options)
    theirs = ours.to_torch()
    x = torch.randn(len(lengths), max(lengths), 3, dtype=torch.float64, requires_grad=True)
    x_in_layout = x if batch_first else x.transpose(0, 1)
    state = torch.randn(3, len(lengths), 4, dtype=torch.float64, requires_grad=True)
    packed = pack_padded_sequence(x_in_layout, torch.tensor(lengths), batch_first, enforce_sorted)
    results = [rnn(packed, state if start else None) for rnn in (ours, theirs)]
    (found, last), (expected, _) = results
    assert isinstance(found, PackedSequence)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)
    gradients = [
        torch.autograd.grad(
            waving(output.data) + waving(h),
            [x, state, *(getattr(rnn, f"weight_{kind}_l{i}") for kind in ("ih", "hh") for i in range(3))],
            allow_unused=True,
            materialize_grads=True,
            retain_graph=True,  # the two share the packing
        )
        for rnn, (output, h) in zip((ours, theirs), results, strict=True)
    ]
    assert_equal([last, *gradients[0]], [results[1][1], *gradients[1]])
    output, other = ours(x_in_layout, state if start else None, lengths=torch.tensor(lengths, dtype=torch.uint8))
    assert_equal([output, other], [pad_packed_sequence(found, batch_first)[0], last])


def test_resets_of_a_packed_input_are_in_the_order_of_the_batch() -> None:
    rnn = bipolar.StackedRNN(4, 4, 5)
    sequences = [torch.randn(length, 4) for length in (3, 6, 5)]
    reset = torch.zeros(6, 3, dtype=torch.bool)
    reset[2, 1] = reset[4, 2] = True
    output, last = rnn(pack_sequence(sequences, enforce_sorted=False), reset=reset)
    padded, lengths = pad_packed_sequence(output)
    assert lengths.tolist() == [3, 6, 5]
    for b, start in enumerate((0, 2, 4)):
        alone, own = rnn(sequences[b][start:])
        torch.testing.assert_close(padded[start : lengths[b], b], alone)
        torch.testing.assert_close(last[:, b], own)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("noise", [NOISE, RARE], ids=["masks", "gaps"])
@pytest.mark.parametrize("packed", [False, True])
def test_gradients(backend: Any, noise: dict[str, float], packed: bool) -> None:
    rnn = bipolar.StackedRNN(2, 2, 5, "belu", skip_every=2, backend=backend, dtype=torch.float64, **noise)
    reset = torch.tensor([[True, False, False], [False, True, False], [False, False, False], [True, False, False]])

    def run(x: Tensor, state: Tensor, *_: Tensor) -> Any:
        options: Any = {"reset": reset, "generator": torch.Generator().manual_seed(3)}
        if not packed:
            return rnn(x, state, lengths=[4, 2, 1], **options)
        output, last = rnn(pack_padded_sequence(x, torch.tensor([4, 2, 1])), state, **options)
        return output.data, last

    x, state = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3, 2), (5, 3, 2)))
    assert torch.autograd.gradcheck(run, (x, state, *rnn.parameters()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_may_hold_anything_and_grow_beyond_all_bounds(backend: Any) -> None:
    rnn = bipolar.StackedRNN(4, 4, 3, "relu", backend=backend)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.mul_(30)  # from any state but zero the stack reaches infinity within the padding
    x, lengths = torch.randn(60, 2, 4), [60, 2]
    x[:, 0] = 0
    x[2:, 1] = torch.tensor([float("nan"), float("inf"), 1e38, 0.0])
    output, state = rnn(x, lengths=lengths)
    (output.sum() + state.sum()).backward()
    found = [p.grad.clone() for p in rnn.parameters()]
    rnn.zero_grad()
    alone, own = rnn(x[:2, 1])
    (alone.sum() + own.sum()).backward()
    torch.testing.assert_close(output[:2, 1], alone)
    torch.testing.assert_close(state[:, 1], own)
    assert output[2:, 1].eq(0).all()
    torch.testing.assert_close(found, [p.grad for p in rnn.parameters()])
    assert any(gradient.abs().max() > 0 for gradient in found)
    assert not rnn(x.nan_to_num(1.0, 1.0), lengths=None)[0].isfinite().all()


def test_a_sequence_without_batch_has_resets() -> None:
    rnn, x = bipolar.StackedRNN(4, 4, 5), torch.randn(6, 4)
    output, state = rnn(x, reset=torch.arange(6) == 2)
    assert output.shape == (6, 4)
    torch.testing.assert_close(output[2:], rnn(x[2:])[0])
    torch.testing.assert_close(state, rnn(x[2:])[1])


def test_steps_from_a_state_of_zeros_are_a_reset() -> None:
    rnn, x, state = bipolar.StackedRNN(4, 4, 5).eval(), torch.randn(3, 2, 4), torch.randn(5, 2, 4)
    reset = torch.tensor([[False, True], [True, False], [False, False]])
    expected, last = rnn(x, state, reset=reset)
    for t in range(3):
        output, state = rnn.step(x[t], state * ~reset[t].unsqueeze(1))
        torch.testing.assert_close(output, expected[t])
    torch.testing.assert_close(state, last)


class TestTransforms:
    x, lengths = torch.randn(3, 2, 4), torch.tensor([3, 2])
    reset = torch.tensor([[False, False], [True, False], [False, True]])

    def test_export(self) -> None:
        rnn = bipolar.StackedRNN(4, 4, 4).eval()
        options = {"lengths": self.lengths, "reset": self.reset}
        exported = torch.export.export(rnn, (self.x,), options).module()
        for lengths in (self.lengths, torch.tensor([1, 3])):
            found, expected = (f(self.x, lengths=lengths, reset=self.reset) for f in (exported, rnn))
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    @pytest.mark.filterwarnings("ignore:The .grad attribute")  # from within torch, at a graph break
    def test_compile(self) -> None:
        rnn = bipolar.StackedRNN(4, 4, 4)
        compiled = torch.compile(rnn, backend="eager")
        for lengths in (self.lengths, torch.tensor([1, 3])):
            found, expected = (f(self.x, lengths=lengths, reset=self.reset) for f in (compiled, rnn))
            torch.testing.assert_close(found, expected)

    def test_forward_mode(self) -> None:
        rnn = bipolar.StackedRNN(4, 4, 3)

        def loss(x: Tensor) -> Tensor:
            output, state = rnn(x, lengths=self.lengths, reset=self.reset)
            return output.square().sum() + state.square().sum()

        slope = torch.func.jvp(loss, (self.x,), (torch.ones_like(self.x),))[1]
        torch.testing.assert_close(slope, torch.func.grad(loss)(self.x).sum())

    def test_lengths_of_each_call(self) -> None:
        rnn, x = bipolar.StackedRNN(3, 3, 4), torch.randn(2, 5, 3, 3)
        lengths = torch.tensor([[5, 1, 3], [2, 4, 5]])
        together = torch.vmap(lambda each, own: rnn(each, lengths=own))(x, lengths)
        for place in range(2):
            alone = rnn(x[place], lengths=lengths[place])
            torch.testing.assert_close([part[place] for part in together], list(alone), rtol=1e-5, atol=1e-6)

    def test_gradients_of_each_call_by_its_lengths(self) -> None:
        rnn, x = bipolar.StackedRNN(3, 3, 4), torch.randn(2, 5, 3, 3)
        lengths = torch.tensor([[5, 1, 3], [2, 4, 5]])

        def loss(each: Tensor, own: Tensor) -> Tensor:
            return rnn(each, lengths=own)[0].square().sum()

        together = torch.vmap(torch.func.grad(loss))(x, lengths)
        for place in range(2):
            alone = torch.func.grad(loss)(x[place], lengths[place])
            torch.testing.assert_close(together[place], alone, rtol=1e-4, atol=1e-6)

    def test_autocast(self) -> None:
        rnn = bipolar.StackedRNN(4, 4, 4)
        packed = pack_padded_sequence(self.x, self.lengths)
        expected = rnn(packed)[0].data
        with torch.autocast("cpu", torch.bfloat16):
            output, state = rnn(packed)
        assert output.data.dtype == state.dtype == torch.bfloat16
        torch.testing.assert_close(output.data.float(), expected, rtol=0.1, atol=0.1)


BAD_SIZES = PackedSequence(torch.randn(5, 4), torch.tensor([2, 3]))
UNSORTED = pack_sequence([torch.randn(2, 4), torch.randn(3, 4)], enforce_sorted=False)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"lengths": [3, 0]},
            ValueError,
            "lengths: expected 1 to 3, the time steps of the input, got 0 for sequence 1",
        ),
        ({"lengths": [4, 2]}, ValueError, "lengths: expected 1 to 3, .* got 4 for sequence 0"),
        ({"lengths": torch.tensor([-1, 3])}, ValueError, "lengths: expected 1 to 3, .* got -1"),
        ({"lengths": [3]}, ValueError, r"lengths: expected one for each of 2 sequences, got shape \(1,\)"),
        ({"lengths": torch.tensor(3)}, ValueError, r"lengths: expected one for each of 2 sequences, got shape \(\)"),
        ({"lengths": torch.tensor([3.0, 2.0])}, TypeError, r"lengths: expected integers, got torch\.float32"),
        ({"lengths": torch.tensor([True, True])}, TypeError, r"lengths: expected integers, got torch\.bool"),
        ({"lengths": ["a", "b"]}, TypeError, r"lengths: expected integers, one for each of 2 .* got \['a', 'b'\]"),
        ({"lengths": [[1], [2, 3]]}, TypeError, r"lengths: expected integers, one for each of 2 sequences"),
        ({"lengths": [None, 2]}, TypeError, r"lengths: expected integers, one for each of 2 sequences"),
        ({"input": torch.randn(3, 4), "lengths": [3]}, ValueError, "lengths: the input has no batch"),
        (
            {"input": pack_padded_sequence(torch.randn(3, 2, 4), torch.tensor([3, 2])), "lengths": [3, 2]},
            ValueError,
            "lengths: a PackedSequence has its own",
        ),
        ({"input": BAD_SIZES}, ValueError, r"input: expected batch_sizes that never grow, .* got \[2, 3\]"),
        (
            {"input": PackedSequence(torch.randn(5, 4), torch.tensor([3, 1]))},
            ValueError,
            r"input: expected batch_sizes .* sum up to the 5 rows of data, got \[3, 1\]",
        ),
        (
            {"input": PackedSequence(*UNSORTED[:2], torch.tensor([0, 7]), torch.tensor([0, 1]))},
            ValueError,
            r"input: expected sorted_indices with each of the 2 sequences once, from 0 on, got \[0, 7\]",
        ),
        (
            {"input": PackedSequence(*UNSORTED[:3], torch.tensor([1]))},
            ValueError,
            r"input: expected unsorted_indices with each of the 2 sequences once, from 0 on, got \[1\]",
        ),
        (
            {"input": pack_sequence([torch.randn(2, 3)])},
            ValueError,
            r"input: expected packed data of shape \(steps, 4\), got \(2, 3\)",
        ),
        (
            {"input": pack_sequence([torch.randn(2, 4)]), "state": torch.zeros(6, 2, 5)},
            ValueError,
            r"state: expected \(num_layers, batch, hidden_size\) = \(6, 1, 5\)",
        ),
        (
            {"input": pack_sequence([torch.randn(2, 4)]), "reset": torch.zeros(3, 1, dtype=torch.bool)},
            ValueError,
            r"reset: expected \(time, batch\) = \(2, 1\), got shape \(3, 1\)",
        ),
        (
            {"reset": torch.zeros(2, 3, dtype=torch.bool)},
            ValueError,
            r"reset: expected \(time, batch\) = \(3, 2\), got shape \(2, 3\)",
        ),
        ({"reset": torch.zeros(3, dtype=torch.bool)}, ValueError, r"reset: expected \(time, batch\) = \(3, 2\)"),
        (
            {"input": torch.randn(3, 4), "reset": torch.zeros(3, 1, dtype=torch.bool)},
            ValueError,
            r"reset: expected \(time,\) = \(3,\), got shape \(3, 1\)",
        ),
        ({"reset": torch.zeros(3, 2)}, TypeError, r"reset: expected a tensor of truth values .* got torch\.float32"),
        ({"reset": [[False]]}, TypeError, "reset: expected a tensor of truth values .* got list"),
    ],
)
def test_bad_input(options: dict[str, Any], error: type[Exception], message: str) -> None:
    rnn = bipolar.StackedRNN(4, 5, 6)
    with pytest.raises(error, match=message):
        rnn(**({"input": torch.randn(3, 2, 4)} | options))


def test_bad_resets_with_the_batch_first() -> None:
    rnn = bipolar.StackedRNN(4, 5, 6, batch_first=True)
    with pytest.raises(ValueError, match=r"reset: expected \(batch, time\) = \(2, 3\), got shape \(3, 2\)"):
        rnn(torch.randn(2, 3, 4), reset=torch.zeros(3, 2, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int32])
def test_lengths_of_a_narrow_type_beside_many_steps(dtype: torch.dtype) -> None:
    rnn, x = bipolar.StackedRNN(4, 5, 2), torch.randn(300, 2, 4)
    lengths = torch.tensor([100, 44])
    for found, expected in zip(rnn(x, lengths=lengths.to(dtype)), rnn(x, lengths=lengths), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reset_may_be_filled_anew_before_the_backward_pass(backend: Any, recompute: bool) -> None:
    rnn, x = bipolar.StackedRNN(4, 4, 4, backend=backend, recompute=recompute), torch.randn(6, 3, 4)
    reset = torch.zeros(6, 3, dtype=torch.bool)
    reset[2] = True
    found = []
    for buffer in (reset.clone(), reset):
        rnn.zero_grad()
        output, _ = rnn(x, reset=buffer)
        if buffer is reset:
            buffer.zero_()
        output.square().sum().backward()
        found.append([gradient.clone() for gradient in gradients(rnn)])
    torch.testing.assert_close(*found)


def test_a_batch_without_sequences_has_no_lengths() -> None:
    rnn = bipolar.StackedRNN(4, 5, 2)
    assert rnn(torch.randn(3, 0, 4), lengths=[])[0].shape == (3, 0, 5)


def test_torch_itself_refuses_to_pack_unsorted_lengths_where_sorting_is_enforced() -> None:
    with pytest.raises(RuntimeError, match="must be sorted in decreasing order when `enforce_sorted` is True"):
        pack_padded_sequence(torch.randn(3, 2, 4), torch.tensor([2, 3]))
    rnn, x = bipolar.StackedRNN(4, 5, 6), torch.randn(3, 2, 4)
    torch.testing.assert_close(rnn(x, lengths=[2, 3])[0][:, 1], rnn(x[:, 1])[0])  # a stack takes any order
