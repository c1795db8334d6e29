"""The Lyapunov exponent of recurrent layers: against explicit Jacobians, and where it is known."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import bipolar
from bipolar._probe.lyapunov import _random_like, describe, lyapunov

KINDS: dict[str, Any] = {
    "stack": lambda **options: bipolar.StackedRNN(3, 3, 4, "belu", skip_every=2, **options),
    "rnn": lambda **options: nn.RNN(3, 4, 2, **options),
    "lstm": lambda **options: nn.LSTM(3, 4, 2, **options),
    "lstm with projection": lambda **options: nn.LSTM(3, 4, 2, proj_size=2, **options),
    "gru": lambda **options: nn.GRU(3, 4, 2, **options),
}


def exponent(rnn: nn.Module, batch: Any) -> float:
    (layer,) = bipolar.probe(rnn, batch)
    assert layer.lyapunov is not None
    return layer.lyapunov


def by_jacobians(rnn: Any, x: Tensor, state: tuple[Tensor, ...], direction: tuple[Tensor, ...]) -> float:
    """The exponent for one sequence (time, features), from the products of whole Jacobians."""
    shapes = [part.shape for part in state]

    def apart(flat: Tensor) -> list[Tensor]:
        sizes = [shape.numel() for shape in shapes]
        return [part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]

    def step(flat: Tensor, now: Tensor) -> Tensor:
        parts = apart(flat)
        last = rnn(now.unsqueeze(0), tuple(parts) if len(parts) > 1 else parts[0])[1]
        return torch.cat([part.flatten() for part in (last if isinstance(last, tuple) else (last,))])

    flat, vector = (torch.cat([part.flatten() for part in parts]) for parts in (state, direction))
    product, logarithms = torch.eye(len(flat), dtype=flat.dtype), [vector.norm().log()]
    for now in x:
        jacobian = torch.autograd.functional.jacobian(lambda h, now=now: step(h, now), flat)
        product, flat = jacobian @ product, step(flat, now)
        logarithms.append((product @ vector).norm().log())
    settled = len(x) // 2
    return float(logarithms[-1] - logarithms[settled]) / (len(x) - settled)


@settings(max_examples=15)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    form=st.sampled_from(["one length", "packed", "lengths"]),
    batch_first=st.booleans(),
    start=st.booleans(),
)
def test_it_is_the_growth_by_the_product_of_the_jacobians(
    kind: str, lengths: list[int], form: str, batch_first: bool, start: bool
) -> None:
    rnn = KINDS[kind](batch_first=batch_first, dtype=torch.float64)
    if form == "one length":
        lengths = [max(lengths)] * len(lengths)
    elif form == "lengths" and kind != "stack":
        form = "packed"  # torch's own have no lengths
    x = torch.randn(max(lengths), len(lengths), 3, dtype=torch.float64)
    state = rnn(x.transpose(0, 1) if batch_first else x)[1]  # any state will do
    parts = tuple(part.detach() for part in (state if isinstance(state, tuple) else (state,)))
    parts = parts if start else tuple(torch.zeros_like(part) for part in parts)
    batch: dict[str, Any] = {"input": x.transpose(0, 1) if batch_first else x}
    order = list(range(len(lengths)))  # that of the directions
    if form == "packed":
        batch["input"] = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
        order = batch["input"].sorted_indices.tolist()
    elif form == "lengths":
        batch["lengths"] = lengths
    if start:
        batch["state" if kind == "stack" else "hx"] = parts if len(parts) > 1 else parts[0]
    expected = []
    for b, *direction in zip(order, *(part.unbind(1) for part in _random_like(parts)), strict=True):
        expected.append(by_jacobians(rnn, x[: lengths[b], b], tuple(part[:, b] for part in parts), tuple(direction)))
    assert exponent(rnn, batch) == pytest.approx(sum(expected) / len(expected), rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.3])
def test_a_scaled_rotation_has_the_logarithm_of_its_scale(scale: float) -> None:
    stack = bipolar.StackedRNN(4, 16, 1, "identity", skip_every=None)
    nn.init.orthogonal_(stack.weight_hh_l0, scale)
    assert exponent(stack, torch.randn(20, 3, 4)) == pytest.approx(math.log(scale), abs=1e-5)
    rnn = nn.RNN(4, 16, bias=False)  # without input its state is zero, where tanh has a slope of 1
    nn.init.orthogonal_(rnn.weight_hh_l0, scale)
    assert exponent(rnn, torch.zeros(20, 3, 4)) == pytest.approx(math.log(scale), abs=1e-5)


def test_strong_growth_in_half_precision() -> None:
    """A factor of 300 a step, whose square half precision does not have."""
    rnn = nn.RNN(4, 8, bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(300 * torch.eye(8))
    assert exponent(rnn.half(), torch.zeros(10, 1, 4, dtype=torch.float16)) == pytest.approx(math.log(300), rel=1e-3)


def test_a_reset_sets_the_state_to_zero_and_leaves_the_direction() -> None:
    stack, x = bipolar.StackedRNN(4, 4, 3, "belu", dtype=torch.float64), torch.randn(6, 1, 4, dtype=torch.float64)

    def step(flat: Tensor, now: Tensor) -> Tensor:
        last: Tensor = stack(now, flat.view(3, 4))[1].flatten()
        return last

    zeros = torch.zeros(12, dtype=torch.float64)
    vectors = [_random_like((torch.zeros(3, 1, 4, dtype=torch.float64),))[0].flatten()]
    for now in x:  # every step is an episode
        vectors.append(torch.autograd.functional.jacobian(lambda h, now=now: step(h, now), zeros) @ vectors[-1])
    expected = float((vectors[6].norm() / vectors[3].norm()).log()) / 3
    reset = torch.ones(6, 1, dtype=torch.bool)
    assert exponent(stack, {"input": x, "reset": reset}) == pytest.approx(expected, rel=1e-8)


def tanh_network(gain: float) -> nn.RNN:
    rnn = nn.RNN(1, 100, bias=False)
    nn.init.normal_(rnn.weight_hh_l0, std=gain / 10)
    nn.init.normal_(rnn.weight_ih_l0, std=0.1)
    return rnn


def test_a_sentence_tells_contraction_from_chaos() -> None:
    """A random network of tanh is chaotic from a gain of 1 on (Sompolinsky, Crisanti & Sommers, 1988)."""
    x = torch.randn(100, 4, 1)
    quiet, wild = (bipolar.probe(tanh_network(gain), x) for gain in (0.5, 3.0))
    assert quiet[0].lyapunov == pytest.approx(math.log(0.5), abs=0.2)
    assert quiet.warnings() == []
    (sentence,) = quiet.recurrence()
    assert sentence.startswith("'RNN' contracts: a small difference in its state shrinks by ")
    assert "to a hundredth within " in sentence
    assert wild[0].lyapunov is not None
    assert wild[0].lyapunov > 0.2
    (sentence,) = wild.recurrence()
    assert sentence.startswith("'RNN' is chaotic: a small difference in its state grows by ")
    assert sentence in wild.warnings()
    rotation = nn.RNN(4, 16, bias=False)
    nn.init.orthogonal_(rotation.weight_hh_l0)
    assert "is at the edge" in bipolar.probe(rotation, torch.zeros(9, 2, 4)).recurrence()[0]


def test_a_state_that_is_not_used_is_forgotten() -> None:
    rnn = nn.RNN(4, 4)
    nn.init.zeros_(rnn.weight_hh_l0)
    result = bipolar.probe(rnn, torch.randn(5, 2, 4))
    assert result[0].lyapunov == -math.inf
    assert "forgets its state" in result.recurrence()[0]


@pytest.mark.parametrize("kind", [nn.RNN, bipolar.StackedRNN])
def test_a_state_that_explodes_is_said_to(kind: Any) -> None:
    rnn = kind(16, 16, 2, nonlinearity="relu")
    for parameter in rnn.parameters():
        parameter.data.mul_(1e4)
    exponent = lyapunov(rnn, (torch.randn(50, 2, 16),), {})
    assert exponent is not None
    assert math.isnan(exponent)
    assert describe("rnn", exponent).startswith("'rnn' explodes")


def test_a_batch_without_sequences_has_no_exponent() -> None:
    assert lyapunov(nn.RNN(4, 4), (torch.randn(5, 0, 4),), {}) is None


def test_layers_without_an_exponent() -> None:
    class Own(nn.LSTM):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            output: Tensor = super().forward(x)[0]
            return output

    class Backward(torch.autograd.Function):
        """The identity, without a derivative in forward mode."""

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad

    one_way: Any = Backward.apply
    for rnn in (nn.LSTM(4, 4, bidirectional=True), Own(4, 4), bipolar.StackedRNN(4, 4, 2, one_way), nn.Linear(4, 4)):
        result = bipolar.probe(rnn, torch.randn(5, 2, 4))
        assert result[0].lyapunov is None
        assert result.recurrence() == []
        assert "lyapunov" not in result.table()


def test_it_is_a_column_of_the_table_and_leaves_no_trace() -> None:
    model = bipolar.models.CharRNN(30, 16, 4, dropout=0.5)
    tokens = torch.randint(30, (20, 3))
    found = bipolar.probe(model.eval(), tokens)
    assert "lyapunov" in found.table()
    assert [layer.name for layer in found] == ["rnn", "decoder"]
    assert found.to_dict()["layers"][0]["lyapunov"] == found["rnn"].lyapunov
    drawn, onednn = torch.get_rng_state(), torch.backends.mkldnn.enabled
    with torch.inference_mode():
        assert bipolar.probe(model, tokens)["rnn"].lyapunov == found["rnn"].lyapunov
    assert torch.equal(torch.get_rng_state(), drawn)
    assert bipolar.probe(model.train(), tokens)["rnn"].lyapunov == found["rnn"].lyapunov  # dropout has no part in it
    assert model.rnn.training
    assert torch.backends.mkldnn.enabled == onednn
    with torch.autocast("cpu", torch.bfloat16):
        assert bipolar.probe(model, tokens)["rnn"].lyapunov == pytest.approx(found["rnn"].lyapunov)
