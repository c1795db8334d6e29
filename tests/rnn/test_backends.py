"""The fast backends against the reference, and their limits."""

import copy
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import bipolar
from bipolar._rnn import backends, scan, wavefront
from bipolar._tools.nested import tensors_in
from tests.helpers.stacks import FAST, NOISE, RARE, gradients, results


@given(
    depth=st.integers(1, 40),
    width=st.integers(1, 64),
    inputs=st.integers(0, 3),
    batch=st.integers(1, 7),
    time=st.integers(1, 30),
    nonlinearity=st.sampled_from(FAST),
    skip_every=st.sampled_from([None, 1, 2, 4, 7]),
    noise=st.sets(st.sampled_from(sorted(NOISE))),
    rates=st.sampled_from([NOISE, RARE]),
    options=st.fixed_dictionaries(
        {
            "bias": st.booleans(),
            "pattern": st.sampled_from(["alternate", "halves"]),
            "batch_first": st.booleans(),
            "recompute": st.booleans(),
        }
    ),
    start=st.booleans(),
    frozen=st.sets(st.sampled_from(["weight_ih_l0", "weight_hh_l0", "bias_l0", "weight_ih", "weight_hh", "bias"])),
    backend=st.sampled_from(["scan", "wavefront"]),
    weights=st.sampled_from([(1.0, 1.0), (1.0, 0.0), (0.0, 1.0)]),
)
def test_the_fast_path_equals_the_reference(
    depth: int,
    width: int,
    inputs: int,
    batch: int,
    time: int,
    nonlinearity: str,
    skip_every: int | None,
    noise: set[str],
    rates: dict[str, float],
    options: dict[str, Any],
    start: bool,
    frozen: set[str],
    backend: Any,
    weights: tuple[float, float],
) -> None:
    torch.manual_seed(depth)
    probabilities = {name: rates[name] for name in noise if skip_every or name != "block_dropout"}
    options = options | probabilities | {"skip_every": skip_every, "dtype": torch.float64}
    rnn = bipolar.StackedRNN(inputs or width, width, depth, nonlinearity, **options)
    for name, parameter in rnn.named_parameters():
        parameter.requires_grad_(not any(name.startswith(part) for part in frozen))
    shape = (batch, time) if options["batch_first"] else (time, batch)
    x = torch.randn(*shape, inputs or width, dtype=torch.float64, requires_grad=True)
    state = torch.randn(rnn.num_layers, batch, width, dtype=torch.float64, requires_grad=True) if start else None
    reference = copy.deepcopy(rnn)
    reference.backend, rnn.backend, reference.recompute = "reference", backend, False
    for ours, theirs in zip(results(rnn, x, state, weights), results(reference, x, state, weights), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10 * (1 + float(theirs.detach().abs().max())))


@settings(max_examples=40)
@given(
    depth=st.integers(1, 40),
    width=st.integers(1, 64),
    batch=st.integers(1, 7),
    time=st.integers(1, 30),
    nonlinearity=st.sampled_from(FAST),
    skip_every=st.sampled_from([None, 2, 4]),
    noise=st.sets(st.sampled_from(sorted(NOISE))),
    rates=st.sampled_from([NOISE, RARE]),
    backend=st.sampled_from(["scan", "wavefront"]),
)
def test_the_fast_path_in_single_precision(
    depth: int,
    width: int,
    batch: int,
    time: int,
    nonlinearity: str,
    skip_every: int | None,
    noise: set[str],
    rates: dict[str, float],
    backend: Any,
) -> None:
    """To 1e-5 of the largest value, or of 1, against the reference in double precision; or, where the stack makes much
    of a rounding error, about as close as the reference itself in single precision.

    Gradients where the activation has a continuous derivative: at a kink, rounding decides which of two holds.
    """
    torch.manual_seed(depth)
    options: dict[str, Any] = {name: rates[name] for name in noise if skip_every or name != "block_dropout"}
    rnn = bipolar.StackedRNN(width, width, depth, nonlinearity, skip_every=skip_every, backend=backend, **options)
    reference = copy.deepcopy(rnn)
    reference.backend = "reference"
    x = torch.randn(time, batch, width, requires_grad=True)
    ours, rounded = (results(stack, x, None, (1.0, 1.0)) for stack in (rnn, reference))
    exact = results(reference.double(), x.detach().double().requires_grad_(), None, (1.0, 1.0))
    smooth = nonlinearity in ("elu", "belu", "celu", "bcelu", "tanh")
    compared = slice(None if smooth else 2)
    floor = max(
        (a - b).abs().max() / (1 + b.abs().max()) for a, b in zip(rounded[compared], exact[compared], strict=True)
    )
    for got, expected in zip(ours[compared], exact[compared], strict=True):
        assert (got - expected).abs().max() <= max(1e-5, 10 * floor) * (1 + expected.abs().max())


@pytest.mark.parametrize("backend", ["reference", "scan", "wavefront"])
@pytest.mark.parametrize("rates", [NOISE, RARE])
def test_gradients(backend: Any, rates: dict[str, Any]) -> None:
    rnn = bipolar.StackedRNN(3, 2, 5, "belu", skip_every=2, backend=backend, dtype=torch.float64, **rates)

    def run(x: Tensor, state: Tensor, *_: Tensor) -> Any:
        return rnn(x, state, generator=torch.Generator().manual_seed(3))

    x, state = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 2, 3), (5, 2, 2)))
    assert torch.autograd.gradcheck(run, (x, state, *rnn.parameters()))


def test_second_derivatives_work_on_the_reference_and_are_refused_on_the_fast_path() -> None:
    x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    for backend in ("reference", "wavefront"):
        rnn = bipolar.StackedRNN(4, 4, 4, backend=backend, dtype=torch.float64)
        loss = rnn(x)[0].square().sum()
        if backend == "reference":
            (grad,) = torch.autograd.grad(loss, x, create_graph=True)
            torch.autograd.grad(grad.sum(), x)
        else:
            with pytest.raises(RuntimeError, match="create_graph: the fast path has no second derivative"):
                torch.autograd.grad(loss, x, create_graph=True)


def test_batches_of_gradients_are_refused_on_the_fast_path() -> None:
    for backend in ("scan", "wavefront"):
        rnn, x = bipolar.StackedRNN(4, 4, 3, backend=backend), torch.randn(2, 1, 4, requires_grad=True)
        output = rnn(x)[0]
        with pytest.raises(RuntimeError, match="is_grads_batched: not on the fast path"):
            torch.autograd.grad(output, x, torch.ones(3, *output.shape), is_grads_batched=True)


def test_the_output_may_be_changed_in_place() -> None:
    for backend in ("scan", "wavefront"):
        rnn, x = bipolar.StackedRNN(4, 4, 5, "relu", backend=backend), torch.randn(3, 2, 4)
        output, state = rnn(x)
        (output.mul(2).sum() + state.mul(2).sum()).backward()
        expected = [grad.clone() for grad in gradients(rnn)]
        rnn.zero_grad()
        output, state = rnn(x)
        (output.mul_(2).sum() + state.mul_(2).sum()).backward()
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(gradients(rnn), expected, strict=True))


def test_a_graph_can_be_run_through_twice() -> None:
    for backend, rates in product(("scan", "wavefront"), ({}, NOISE, RARE)):
        rnn = bipolar.StackedRNN(4, 4, 5, backend=backend, **rates)
        output = rnn(torch.randn(3, 2, 4))[0].sum()
        output.backward(retain_graph=True)
        once = [grad.clone() for grad in gradients(rnn)]
        output.backward()
        torch.testing.assert_close(gradients(rnn), [2 * grad for grad in once])


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # of the checks of shapes
@pytest.mark.parametrize("backend", ["auto", "scan", "wavefront"])
@pytest.mark.parametrize("nonlinearity", ["tanh", "brelu"])
def test_a_traced_stack_equals_the_stack(backend: Any, nonlinearity: str) -> None:
    for recompute in (False, True):
        rnn = bipolar.StackedRNN(4, 4, 4, nonlinearity, backend=backend, recompute=recompute).eval()
        traced = torch.jit.trace(rnn, (torch.randn(5, 3, 4),))
        x = torch.randn(5, 3, 4)
        torch.testing.assert_close(traced(x), rnn(x))


class PeakMemory(TorchDispatchMode):
    """The largest number of bytes that tensors made within a ``with`` block held at the same time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive: dict[StorageWeakRef, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        storages = [tensor.untyped_storage() for tensor in tensors_in(result)]
        made = {StorageWeakRef(storage): storage.nbytes() for storage in storages}
        if made.keys() - self.alive.keys():
            self.alive = {ref: size for ref, size in (self.alive | made).items() if not ref.expired()}
            self.peak = max(self.peak, sum(self.alive.values()))
        return result


@pytest.mark.parametrize("backend", ["scan", "wavefront"])
@pytest.mark.parametrize("noise", [{}, NOISE])
@pytest.mark.parametrize("skip_every", [None, 4])
def test_without_gradients_states_are_not_kept(backend: Any, noise: dict[str, Any], skip_every: int | None) -> None:
    noise = {name: p for name, p in noise.items() if skip_every or name != "block_dropout"}
    rnn = bipolar.StackedRNN(8, 8, 16, skip_every=skip_every, backend=backend, **noise)
    x, all_states = torch.randn(30, 4, 8), 16 * 30 * 4 * 8 * 4

    def run() -> tuple[Tensor, int]:
        with PeakMemory() as memory:
            output = rnn(x, generator=torch.Generator().manual_seed(1))[0]
        return output, memory.peak

    output, kept = run()
    with torch.no_grad():
        quick, peak = run()
    torch.testing.assert_close(quick, output)
    assert kept > all_states
    assert peak < kept - all_states / 2


@pytest.mark.parametrize(("backend", "layers", "width"), [("scan", 4, 64), ("wavefront", 36, 8)])
def test_rare_dropout_takes_little_memory(backend: Any, layers: int, width: int) -> None:
    def peak(**rates: float) -> int:
        rnn, x = bipolar.StackedRNN(width, width, layers, backend=backend, **rates), torch.randn(50, 32, width)
        with PeakMemory() as memory:
            rnn(x)[0].sum().backward()
        return memory.peak

    assert peak(dropout=0.05, recurrent_dropout=0.025, block_dropout=0.025) < 1.15 * peak()


class TestRecompute:
    @pytest.mark.parametrize("backend", ["reference", "scan", "wavefront"])
    @pytest.mark.parametrize("skip_every", [None, 2, 3])
    def test_it_changes_nothing_but_what_is_kept(self, backend: Any, skip_every: int | None) -> None:
        noise = NOISE if skip_every else {}
        for inputs in (6, 4):
            rnn = bipolar.StackedRNN(
                inputs, 6, 17, skip_every=skip_every, backend=backend, dtype=torch.float64, **noise
            )
            twin = copy.deepcopy(rnn)
            twin.recompute = True
            x = torch.randn(5, 3, inputs, dtype=torch.float64, requires_grad=True)
            state = torch.randn(17, 3, 6, dtype=torch.float64, requires_grad=True)
            for ours, theirs in zip(results(twin, x, state, (1, 1)), results(rnn, x, state, (1, 1)), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)

    def test_it_keeps_less(self) -> None:
        def kept(recompute: bool) -> int:
            rnn = bipolar.StackedRNN(8, 8, 64, recompute=recompute)
            sizes: dict[int, int] = {}

            def note(tensor: Tensor) -> Tensor:
                sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
                rnn(torch.randn(30, 16, 8, requires_grad=True))
            return sum(sizes.values())

        assert kept(True) < kept(False) / 4


def note_choices(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list of the backends that are chosen from now on, in place of their results."""
    chosen: list[Any] = []

    def note(run: Any, **options: Any) -> Any:
        chosen.append(run)
        return lambda task: (task.input, task.state)

    monkeypatch.setattr(backends, "partial", note)
    return chosen


@pytest.mark.parametrize(
    ("steps", "layers", "units", "batch", "by_layer"),
    [
        (50, 36, 64, 128, False),
        (50, 36, 256, 128, False),
        (50, 4, 64, 128, True),  # few layers
        (1, 36, 64, 128, True),  # few time steps
        (50, 36, 512, 128, True),  # wide layers
        (50, 12, 256, 1, True),  # few sequences, through weights as large as a cache
        (50, 144, 128, 1, False),
        (50, 300, 128, 1, True),  # or through many
        (50, 36, 64, 1, False),
    ],
)
def test_the_choice(
    steps: int, layers: int, units: int, batch: int, by_layer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = note_choices(monkeypatch)
    bipolar.StackedRNN(units, units, layers, "relu", skip_every=None, device="meta").to_empty(device="cpu")(
        torch.zeros(steps, batch, units)
    )
    assert chosen == [scan.run if by_layer else wavefront.run]


@pytest.mark.parametrize(
    ("lengths", "by_layer"),
    [([30, 20, 10], True), ([30, 10, 20], False), ([30, 30, 1], False), ([30, 29, 1], True)],
    ids=["short", "not sorted", "long", "at the limit"],
)
def test_the_choice_where_padding_can_be_skipped(
    lengths: list[int], by_layer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = note_choices(monkeypatch)
    bipolar.StackedRNN(8, 8, 12)(torch.zeros(30, 3, 8), lengths=lengths)
    assert chosen == [scan.run if by_layer else wavefront.run]


def test_padding_of_a_sorted_batch_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def note(x: Tensor, *parameters: Tensor) -> Tensor:
        computed.append(len(x))
        return linear(x, *parameters)

    linear = torch.nn.functional.linear
    monkeypatch.setattr(torch.nn.functional, "linear", note)
    rnn = bipolar.StackedRNN(8, 8, 2, backend="scan")
    for lengths, rows in (([9, 5, 1], 15), ([9, 1, 5], 27)):
        computed.clear()
        rnn(torch.zeros(9, 3, 8), lengths=lengths)
        assert computed == [rows, rows]
