"""StackedRNN: the reference against the paper's formula, the fast path against the reference."""

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import bipolar
from bipolar._activations.recognition import kernel_of
from bipolar.lab import depth

FAST = ["relu", "brelu", "elu", "belu", "leaky_relu", "bleaky_relu", "selu", "bselu", "celu", "bcelu", "tanh"]
NOISE = {"dropout": 0.3, "recurrent_dropout": 0.2, "block_dropout": 0.4}


def results(rnn: bipolar.StackedRNN, x: Tensor, state: Tensor | None, weights: tuple[float, float]) -> list[Tensor]:
    """Output, state, and the gradients of a loss on both, by every input and parameter that needs one."""
    output, last = rnn(x, state, generator=torch.Generator().manual_seed(1))

    def waving(tensor: Tensor) -> Tensor:
        return (tensor * torch.arange(tensor.numel(), dtype=tensor.dtype).cos().view_as(tensor)).sum()

    loss = weights[0] * waving(output) + weights[1] * waving(last)
    inputs = [x, *([] if state is None else [state]), *(p for p in rnn.parameters() if p.requires_grad)]
    gradients = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    return [output, last, *gradients]


def gradients(rnn: bipolar.StackedRNN) -> list[Tensor]:
    return [p.grad for p in rnn.parameters() if p.grad is not None]


@given(
    depth=st.integers(1, 40),
    width=st.integers(1, 64),
    inputs=st.integers(0, 3),
    batch=st.integers(1, 7),
    time=st.integers(1, 30),
    nonlinearity=st.sampled_from(FAST),
    skip_every=st.sampled_from([None, 1, 2, 4, 7]),
    noise=st.sets(st.sampled_from(sorted(NOISE))),
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
    options: dict[str, Any],
    start: bool,
    frozen: set[str],
    backend: Any,
    weights: tuple[float, float],
) -> None:
    torch.manual_seed(depth)
    probabilities = {name: NOISE[name] for name in noise if skip_every or name != "block_dropout"}
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


def test_the_reference_is_the_formula_of_the_paper() -> None:
    """Written out by hand for five layers, with skips every two: the last layer is an incomplete block."""
    rnn = bipolar.StackedRNN(3, 3, 5, "belu", skip_every=2, skip_scale=0.7, dtype=torch.float64, backend="reference")
    for parameter in rnn.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    f = bipolar.BELU(dim=-1)
    h = [[torch.zeros(2, 3, dtype=torch.float64)] for _ in range(5)]
    for t in range(4):
        below = x[t]
        for i in range(5):
            u, w, b = (getattr(rnn, f"{name}_l{i}") for name in ("weight_ih", "weight_hh", "bias"))
            new = f(h[i][t] @ w.T + below @ u.T + b)
            if i == 1:
                new = new + 0.7 * x[t]
            if i == 3:
                new = new + 0.7 * h[1][t + 1]
            h[i].append(new)
            below = new
    output, state = rnn(x)
    torch.testing.assert_close(output, torch.stack(h[4][1:]))
    torch.testing.assert_close(state, torch.stack([layer[-1] for layer in h]))


class TestTorchsOwn:
    @pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
    @pytest.mark.parametrize("bias", [True, False])
    def test_without_skips_it_loads_and_equals_an_rnn(self, nonlinearity: str, bias: bool) -> None:
        theirs = nn.RNN(5, 6, num_layers=3, nonlinearity=nonlinearity, batch_first=True, bias=bias)
        ours = bipolar.StackedRNN(5, 6, 3, nonlinearity, skip_every=None, batch_first=True, bias=bias)
        given = theirs.state_dict()
        assert not any(ours.load_state_dict(given))  # nothing missing, nothing unexpected
        assert ("bias_ih_l0" in given) == bias  # what was given is as it was
        x, state = torch.randn(4, 7, 5), torch.randn(3, 4, 6)
        torch.testing.assert_close(ours(x, state), theirs(x, state), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours(x[0], state[:, 0])[0], theirs(x[0], state[:, 0])[0], rtol=1e-5, atol=1e-5)

    def test_within_a_model(self) -> None:
        theirs, ours = (
            nn.ModuleDict({"rnn": m}) for m in (nn.RNN(5, 6), bipolar.StackedRNN(5, 6, 1, "tanh", skip_every=None))
        )
        ours.load_state_dict(theirs.state_dict())
        torch.testing.assert_close(ours["rnn"].bias_l0, theirs["rnn"].bias_ih_l0 + theirs["rnn"].bias_hh_l0)

    def test_what_would_compute_something_else_is_refused(self) -> None:
        theirs = nn.RNN(5, 6, num_layers=8)
        for options in ({"skip_every": None}, {"nonlinearity": "tanh"}):
            with pytest.raises(RuntimeError, match="which is a StackedRNN with skip_every=None and nonlinearity="):
                bipolar.StackedRNN(5, 6, 8, **options).load_state_dict(theirs.state_dict())


@settings(max_examples=40)
@given(
    depth=st.integers(1, 40),
    width=st.integers(1, 64),
    batch=st.integers(1, 7),
    time=st.integers(1, 30),
    nonlinearity=st.sampled_from(FAST),
    skip_every=st.sampled_from([None, 2, 4]),
    noise=st.sets(st.sampled_from(sorted(NOISE))),
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
    backend: Any,
) -> None:
    """To 1e-5 of the largest value, or of 1, against the reference in double precision; or, where the stack makes much
    of a rounding error, about as close as the reference itself in single precision.

    Gradients where the activation has a continuous derivative: at a kink, rounding decides which of two holds.
    """
    torch.manual_seed(depth)
    options: dict[str, Any] = {name: NOISE[name] for name in noise if skip_every or name != "block_dropout"}
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
def test_gradients(backend: Any) -> None:
    rnn = bipolar.StackedRNN(3, 4, 5, "belu", skip_every=2, backend=backend, dtype=torch.float64, **NOISE)

    def run(x: Tensor, state: Tensor, *_: Tensor) -> Any:
        return rnn(x, state, generator=torch.Generator().manual_seed(3))

    x, state = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 2, 3), (5, 2, 4)))
    assert torch.autograd.gradcheck(run, (x, state, *rnn.parameters()))


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


class TestStep:
    @pytest.mark.parametrize("nonlinearity", [*FAST, "gelu", "bsilu"])
    def test_steps_make_a_pass(self, nonlinearity: str) -> None:
        rnn = bipolar.StackedRNN(6, 6, 9, nonlinearity, dtype=torch.float64, **NOISE).eval()
        x, state = torch.randn(5, 3, 6, dtype=torch.float64), torch.randn(9, 3, 6, dtype=torch.float64)
        expected, last = rnn(x, state)
        rnn.train()  # a step has no dropout, ever
        for t in range(5):
            output, state = rnn.step(x[t], state)
            torch.testing.assert_close(output, expected[t])
        torch.testing.assert_close(state, last)
        assert not output.requires_grad

    def test_without_batch_and_state(self) -> None:
        rnn, x = bipolar.StackedRNN(4, 6, 5).eval(), torch.randn(4)
        output, state = rnn.step(x)
        expected, last = rnn(x[None])
        torch.testing.assert_close(output, expected[0])
        torch.testing.assert_close(state, last)
        output, state = rnn.step(x, state)
        torch.testing.assert_close(output, rnn(torch.stack((x, x)))[0][1])

    def test_what_it_is_given_stays(self) -> None:
        rnn, x, state = bipolar.StackedRNN(4, 4, 5), torch.randn(2, 4), torch.randn(5, 2, 4)
        before = x.clone(), state.clone()
        rnn.step(x, state)
        assert torch.equal(x, before[0])
        assert torch.equal(state, before[1])

    def test_bad_input(self) -> None:
        rnn = bipolar.StackedRNN(4, 6, 5)
        with pytest.raises(ValueError, match=r"input: expected \(batch, 4\) or \(4,\), got shape \(2, 3\)"):
            rnn.step(torch.randn(2, 3))
        with pytest.raises(ValueError, match=r"state: expected .* = \(5, 2, 6\), got \(4, 2, 6\)"):
            rnn.step(torch.randn(2, 4), torch.randn(4, 2, 6))


class TestSurroundings:
    """What torch offers around a module works with this one."""

    def test_autocast(self) -> None:
        rnn, x = bipolar.StackedRNN(8, 8, 6), torch.randn(5, 3, 8)
        expected = rnn(x)[0]
        for backend in ("reference", "scan", "wavefront"):
            rnn.backend = backend
            with torch.autocast("cpu", torch.bfloat16):
                output, state = rnn(x)
                rnn(x, state)
            assert output.dtype == state.dtype == torch.bfloat16
            torch.testing.assert_close(output.float(), expected, rtol=0.1, atol=0.1)
            output.float().sum().backward()
            assert gradients(rnn)[0].dtype == torch.float32

    @pytest.mark.filterwarnings("ignore:The .grad attribute")  # from within torch, at a graph break
    def test_compile(self) -> None:
        rnn, x = bipolar.StackedRNN(8, 8, 4), torch.randn(3, 2, 8)
        compiled = torch.compile(rnn, backend="eager")
        torch.testing.assert_close(compiled(x)[0], rnn(x)[0])

    def test_export(self) -> None:
        rnn, x = bipolar.StackedRNN(8, 8, 4).eval(), torch.randn(3, 2, 8)
        exported = torch.export.export(rnn, (x,)).module()
        torch.testing.assert_close(exported(x)[0], rnn(x)[0], rtol=1e-5, atol=1e-5)

    def test_torch_func_and_forward_mode(self) -> None:
        rnn = bipolar.StackedRNN(4, 4, 3, dtype=torch.float64)
        x, direction = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)

        def loss(x: Tensor) -> Tensor:
            return rnn(x)[0].square().sum()

        gradient = torch.func.grad(loss)(x)
        slope = torch.func.jvp(loss, (x,), (direction,))[1]
        torch.testing.assert_close(slope, (gradient * direction).sum())

    def test_the_output_may_be_changed_in_place(self) -> None:
        for backend in ("scan", "wavefront"):
            rnn, x = bipolar.StackedRNN(4, 4, 5, "relu", backend=backend), torch.randn(3, 2, 4)
            output, state = rnn(x)
            (output.mul(2).sum() + state.mul(2).sum()).backward()
            expected = [grad.clone() for grad in gradients(rnn)]
            rnn.zero_grad()
            output, state = rnn(x)
            (output.mul_(2).sum() + state.mul_(2).sum()).backward()
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(gradients(rnn), expected, strict=True))

    def test_a_graph_can_be_run_through_twice(self) -> None:
        for backend in ("scan", "wavefront"):
            rnn = bipolar.StackedRNN(4, 4, 5, backend=backend)
            output = rnn(torch.randn(3, 2, 4))[0].sum()
            output.backward(retain_graph=True)
            once = [grad.clone() for grad in gradients(rnn)]
            output.backward()
            torch.testing.assert_close(gradients(rnn), [2 * grad for grad in once])

    @pytest.mark.parametrize("skip_every", [None, 4])
    def test_without_gradients_states_are_not_kept(self, skip_every: int | None) -> None:
        rnn, x = bipolar.StackedRNN(8, 8, 9, skip_every=skip_every), torch.randn(40, 2, 8)
        with torch.no_grad():
            quick = rnn(x)[0]
        torch.testing.assert_close(quick, rnn(x)[0])

    def test_the_meta_device(self) -> None:
        rnn = bipolar.StackedRNN(4, 6, 5, "bprelu", device="meta")
        assert rnn(torch.randn(3, 2, 4, device="meta"))[0].shape == (3, 2, 6)

    def test_batches_of_gradients_are_refused_on_the_fast_path(self) -> None:
        for backend in ("scan", "wavefront"):
            rnn, x = bipolar.StackedRNN(4, 4, 3, backend=backend), torch.randn(2, 1, 4, requires_grad=True)
            output = rnn(x)[0]
            with pytest.raises(RuntimeError, match="is_grads_batched: not on the fast path"):
                torch.autograd.grad(output, x, torch.ones(3, *output.shape), is_grads_batched=True)

    def test_a_step_under_autocast(self) -> None:
        rnn = bipolar.StackedRNN(4, 4, 4)
        with torch.autocast("cpu", torch.bfloat16):
            _, state = rnn(torch.randn(3, 2, 4))
            assert rnn.step(torch.randn(2, 4), state)[0].dtype == torch.bfloat16


def test_a_very_deep_stack_trains() -> None:
    """200 layers in place of the 1,000 in results/depth.json."""
    report = depth.measure(layers=200, width=16, batch=16, window=8, steps=3)
    assert report["largest_deviation_from_unit_variance"] <= 1e-3
    norms = report["gradient_norms_by_step"]
    assert len(norms) == 3
    for step in norms:
        assert all(math.isfinite(norm) and norm > 1e-3 * max(step) for norm in step)
    assert report["losses"][-1] < report["losses"][0]


class TestDropout:
    @pytest.mark.parametrize("backend", ["reference", "wavefront"])
    def test_a_generator_repeats_a_pass_and_evaluation_is_deterministic(self, backend: Any) -> None:
        rnn, x = bipolar.StackedRNN(8, 8, 9, backend=backend, **NOISE), torch.randn(6, 3, 8)
        one, two, other = (rnn(x, generator=torch.Generator().manual_seed(seed))[0] for seed in (1, 1, 2))
        assert torch.equal(one, two)
        assert not torch.equal(one, other)
        rnn.eval()
        assert torch.equal(rnn(x)[0], rnn(x)[0])

    def test_a_dropped_block_is_the_identity_and_its_states_stay(self) -> None:
        rnn = bipolar.StackedRNN(4, 4, 6, skip_every=2, block_dropout=0.5)
        x, start = torch.randn(1, 3, 4), torch.randn(6, 3, 4)
        for seed in range(20):
            output, state = rnn(x, start, generator=torch.Generator().manual_seed(seed))
            stayed = [torch.equal(state[i], start[i]) for i in range(6)]
            assert stayed[0::2] == stayed[1::2]  # a block is dropped as a whole
            if all(stayed):
                torch.testing.assert_close(output, x)
                return
        raise AssertionError("twenty passes without all three blocks dropped have a probability of 0.07")

    def test_rnn_drop_has_one_mask_for_a_sequence(self) -> None:
        rnn = bipolar.StackedRNN(1, 50, 1, "identity", skip_every=None, recurrent_dropout=0.5, bias=False)
        nn.init.zeros_(rnn.weight_ih_l0)
        nn.init.eye_(rnn.weight_hh_l0)
        output, _ = rnn(torch.zeros(3, 1, 1), torch.ones(1, 1, 50))
        assert set(output[0].flatten().tolist()) == {0.0, 2.0}
        torch.testing.assert_close(output[2], output[0] ** 3)  # the same units every time

    def test_dropout_acts_on_input_and_every_output(self) -> None:
        rnn = bipolar.StackedRNN(200, 200, 1, "identity", skip_every=1, skip_scale=1.0, dropout=0.5, bias=False)
        for parameter in rnn.parameters():
            nn.init.zeros_(parameter)
        output, state = rnn(torch.ones(1, 1, 200))
        assert set(state.flatten().tolist()) == {0.0, 2.0}  # what the skip carries is dropped out
        assert set(output.flatten().tolist()) == {0.0, 4.0}


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


class Swapped(nn.ELU):
    """Derived from an activation, and something else."""

    def forward(self, input: Tensor) -> Tensor:
        return torch.sin(input)


def test_any_activation_is_welcome() -> None:
    scale = torch.rand(5)
    others = (torch.sin, "gelu", "bsilu", "bsoftplus", nn.Hardtanh(), Swapped(), lambda z: z * scale, nn.LayerNorm(5))
    for nonlinearity in others:
        rnn = bipolar.StackedRNN(4, 5, 4, nonlinearity)
        assert kernel_of(rnn.activation) is None
        assert rnn(torch.randn(3, 2, 4))[0].shape == (3, 2, 5)
    assert kernel_of(torch.tanh) is not None
    hooked = nn.ELU()
    hooked.register_forward_hook(lambda module, args, output: 2 * output)
    assert kernel_of(hooked) is None


def test_an_activation_with_parameters_goes_where_the_stack_goes() -> None:
    rnn = bipolar.StackedRNN(4, 5, 3, "bprelu", dtype=torch.float64)
    rnn(torch.randn(3, 2, 4, dtype=torch.float64))[0].sum().backward()
    assert all(p.grad is not None for p in rnn.parameters())
    bipolar.lsuv_rnn_(rnn, torch.randn(64, 4))
    bipolar.lsuv_rnn_(bipolar.StackedRNN(4, 5, 3, "prelu").bfloat16(), torch.randn(64, 4))


def test_a_bipolar_instance_brings_its_pattern() -> None:
    rnn = bipolar.StackedRNN(4, 6, 3, bipolar.BELU(pattern="halves"))
    assert rnn.pattern == "halves"
    x = torch.randn(3, 2, 4)
    fast = rnn(x)[0]
    rnn.backend = "reference"
    torch.testing.assert_close(fast, rnn(x)[0])
    with pytest.raises(ValueError, match="nonlinearity: the units are in dimension -1"):
        bipolar.StackedRNN(4, 6, 3, bipolar.BELU(dim=0))


def test_a_random_activation() -> None:
    rnn = bipolar.StackedRNN(4, 4, 6, nn.Sequential(nn.ELU(), nn.Dropout(0.5)), skip_every=2, dtype=torch.float64)
    x = torch.randn(3, 2, 4, dtype=torch.float64)
    rnn.recompute = True

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(5)
        output: Tensor = rnn(x)[0]
        return output

    with torch.random.fork_rng():
        assert torch.autograd.gradcheck(run, x.clone().requires_grad_())
    assert torch.equal(rnn.step(x[0])[0], rnn.step(x[0])[0])
    bipolar.lsuv_rnn_(rnn, torch.randn(64, 4))
    assert isinstance(rnn.activation, nn.Sequential)
    assert rnn.activation.training


def test_a_block_that_is_always_dropped_has_a_gradient_of_zero() -> None:
    for backend in ("reference", "scan", "wavefront"):
        rnn = bipolar.StackedRNN(4, 4, 8, block_dropout=0.9, backend=backend)
        for seed in range(5):
            rnn.zero_grad()
            rnn(torch.randn(1, 2, 4), generator=torch.Generator().manual_seed(seed))[0].sum().backward()
            assert all(p.grad is not None for p in rnn.parameters())
    assert all(kernel_of(bipolar.StackedRNN(4, 5, 4, name).activation) is not None for name in FAST)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_size": 0}, "hidden_size: expected at least 1, got 0"),
        ({"skip_every": 0}, "skip_every: expected at least 1"),
        ({"skip_every": 2.0}, "skip_every: expected at least 1, or None for no skips, got 2.0"),
        ({"skip_scale": math.nan}, "skip_scale: expected a finite number, got nan"),
        ({"nonlinearity": "crelu"}, "nonlinearity: expected a function that keeps the shape of its input, got 'crelu'"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
        ({"recurrent_dropout": -0.1}, "recurrent_dropout: expected a probability"),
        ({"block_dropout": 0.1, "skip_every": None}, "block_dropout: only blocks with a skip"),
        ({"gamma": 1.5}, r"gamma: expected a share in \[0, 1\], got 1.5"),
        ({"nonlinearity": "beelu"}, "nonlinearity: no activation is called 'beelu'; did you mean"),
        ({"pattern": "odd"}, "pattern: expected one of"),
        ({"backend": "gpu"}, "backend: expected one of 'auto', 'reference', 'scan', 'wavefront', got 'gpu'"),
        (
            {"backend": "wavefront", "nonlinearity": "gelu"},
            "backend: 'wavefront' does not know the derivative of 'gelu'",
        ),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bipolar.StackedRNN(**({"input_size": 4, "hidden_size": 5, "num_layers": 6} | arguments))


def test_bad_input() -> None:
    rnn = bipolar.StackedRNN(4, 5, 6)
    for x in (torch.randn(3, 2, 5), torch.randn(4), torch.randn(1, 1, 3, 4)):
        with pytest.raises(ValueError, match=r"input: expected \(time, batch, 4\) or \(time, 4\), got shape"):
            rnn(x)
    with pytest.raises(ValueError, match="input: expected at least one time step"):
        rnn(torch.randn(0, 2, 4))
    for state in (torch.zeros(5, 2, 5), torch.zeros(6, 2, 4), torch.zeros(6, 3, 5)):
        with pytest.raises(ValueError, match=r"state: expected \(num_layers, batch, hidden_size\) = \(6, 2, 5\)"):
            rnn(torch.randn(3, 2, 4), state)
    with pytest.raises(ValueError, match=r"input: expected \(batch, time, 4\)"):
        bipolar.StackedRNN(4, 5, 6, batch_first=True)(torch.randn(3, 2, 5))
    with pytest.raises(TypeError, match=r"state: expected torch\.float32 as the input is, got torch\.float64"):
        rnn(torch.randn(3, 2, 4), torch.zeros(6, 2, 5, dtype=torch.float64))
    with pytest.raises(TypeError, match="state: expected a tensor, got tuple"):
        rnn(torch.randn(3, 2, 4), (torch.zeros(6, 2, 5),))
    with pytest.raises(TypeError, match="nonlinearity: expected a name, a function or a module"):
        bipolar.StackedRNN(4, 5, 6, nn.ReLU)
    packed = pack_padded_sequence(torch.randn(3, 2, 4), torch.tensor([3, 2]))
    for call in (rnn.step, lambda given: bipolar.lsuv_rnn_(rnn, given)):
        with pytest.raises(TypeError, match=r"input: expected .* got"):
            call(packed)
    with pytest.raises(TypeError, match="PackedSequence"):
        rnn(pack_padded_sequence(torch.randn(3, 2, 4), torch.tensor([3, 2])))


def test_representation_copy_and_state() -> None:
    rnn = bipolar.StackedRNN(4, 5, 6, "brelu", dropout=0.1, skip_every=3)
    assert repr(rnn).splitlines()[1].strip() == "4, 5, num_layers=6, nonlinearity=brelu, skip_every=3, dropout=0.1"
    twin = bipolar.StackedRNN(4, 5, 6, "brelu", dropout=0.1, skip_every=3)
    twin.load_state_dict(rnn.state_dict())
    x = torch.randn(3, 2, 4)
    assert torch.equal(copy.deepcopy(rnn).eval()(x)[0], twin.eval()(x)[0])
    assert list(rnn.state_dict())[:3] == ["weight_ih_l0", "weight_hh_l0", "bias_l0"]
