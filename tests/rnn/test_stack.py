"""StackedRNN: the reference against the paper's formula, the fast path against the reference."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import bipolar
from bipolar.rnn.derivative import kernel_of

FAST = ["relu", "brelu", "elu", "belu", "leaky_relu", "bleaky_relu", "selu", "bselu", "celu", "bcelu", "tanh"]
NOISE = {"dropout": 0.3, "recurrent_dropout": 0.2, "block_dropout": 0.4}


def results(rnn: bipolar.StackedRNN, x: Tensor, state: Tensor | None, weights: tuple[float, float]) -> list[Tensor]:
    """Output, state, and the gradients of a loss on both, by every input and parameter that needs one."""
    output, last = rnn(x, state, generator=torch.Generator().manual_seed(1))
    wave = torch.arange(output.numel(), dtype=output.dtype).cos().view_as(output)
    loss = weights[0] * (output * wave).sum() + weights[1] * (last * wave[-1]).sum()
    inputs = [x, *([] if state is None else [state]), *(p for p in rnn.parameters() if p.requires_grad)]
    gradients = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    return [output, last, *gradients]


@given(
    depth=st.integers(1, 40),
    width=st.integers(1, 64),
    inputs=st.integers(0, 3),
    batch=st.integers(1, 7),
    time=st.integers(1, 30),
    nonlinearity=st.sampled_from(FAST),
    skip_every=st.sampled_from([None, 1, 2, 4, 7]),
    noise=st.sets(st.sampled_from(sorted(NOISE))),
    options=st.fixed_dictionaries({"bias": st.booleans(), "pattern": st.sampled_from(["alternate", "halves"])}),
    start=st.booleans(),
    frozen=st.booleans(),
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
    frozen: bool,
    backend: Any,
    weights: tuple[float, float],
) -> None:
    torch.manual_seed(depth)
    probabilities = {name: NOISE[name] for name in noise if skip_every or name != "block_dropout"}
    options = options | probabilities | {"skip_every": skip_every, "dtype": torch.float64}
    rnn = bipolar.StackedRNN(inputs or width, width, min(depth, 200 // time + 4), nonlinearity, **options)
    if frozen:
        rnn.weight_hh_l0.requires_grad_(False)
    x = torch.randn(time, batch, inputs or width, dtype=torch.float64, requires_grad=True)
    state = torch.randn(rnn.num_layers, batch, width, dtype=torch.float64, requires_grad=True) if start else None
    reference = copy.deepcopy(rnn)
    reference.backend, rnn.backend = "reference", backend
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


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_without_skips_it_is_torchs_own(nonlinearity: str) -> None:
    theirs = nn.RNN(5, 6, num_layers=3, nonlinearity=nonlinearity, batch_first=True)
    ours = bipolar.StackedRNN(5, 6, 3, nonlinearity, skip_every=None, batch_first=True)
    for i in range(3):
        for name in ("weight_ih", "weight_hh"):
            getattr(ours, f"{name}_l{i}").data = getattr(theirs, f"{name}_l{i}").data
        getattr(ours, f"bias_l{i}").data = getattr(theirs, f"bias_ih_l{i}").data + getattr(theirs, f"bias_hh_l{i}").data
    x, state = torch.randn(4, 7, 5), torch.randn(3, 4, 6)
    torch.testing.assert_close(ours(x, state), theirs(x, state), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours(x[0], state[:, 0])[0], theirs(x[0], state[:, 0])[0], rtol=1e-5, atol=1e-5)


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


def test_any_activation_is_welcome() -> None:
    for nonlinearity in (torch.sin, "gelu", "bsilu", "bsoftplus", nn.Hardtanh()):
        rnn = bipolar.StackedRNN(4, 5, 4, nonlinearity)
        assert kernel_of(rnn.activation) is None
        assert rnn(torch.randn(3, 2, 4))[0].shape == (3, 2, 5)
    assert all(kernel_of(bipolar.StackedRNN(4, 5, 4, name).activation) is not None for name in FAST)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_size": 0}, "hidden_size: expected at least 1, got 0"),
        ({"skip_every": 0}, "skip_every: expected at least 1"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
        ({"recurrent_dropout": -0.1}, "recurrent_dropout: expected a probability"),
        ({"block_dropout": 0.1, "skip_every": None}, "block_dropout: only blocks with a skip"),
        ({"gamma": 1.5}, r"gamma: expected a share in \[0, 1\], got 1.5"),
        ({"nonlinearity": "beelu"}, "no activation is called 'beelu'; did you mean"),
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
