"""StackedRNN.stepper against a pass over the sequence."""

from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import bipolar
from bipolar._rnn import onnx_step
from tests.helpers.stacks import FAST, NOISE


@given(
    nonlinearity=st.sampled_from([*FAST, "gelu", "bsilu"]),
    pattern=st.sampled_from(["alternate", "halves"]),
    layers=st.integers(1, 9),
    batch=st.integers(1, 3),
    input_size=st.sampled_from([4, 6]),
    skip_every=st.sampled_from([None, 1, 2, 4]),
    bias=st.booleans(),
)
def test_steps_make_a_pass(
    nonlinearity: str, pattern: str, layers: int, batch: int, input_size: int, skip_every: int | None, bias: bool
) -> None:
    rnn = bipolar.StackedRNN(
        input_size,
        6,
        layers,
        nonlinearity,
        pattern=pattern,
        skip_every=skip_every,
        bias=bias,
        dtype=torch.float64,
    ).eval()
    for parameter in rnn.parameters():
        nn.init.normal_(parameter, std=0.3)
    x, state = (torch.randn(shape, dtype=torch.float64) for shape in ((4, batch, input_size), (layers, batch, 6)))
    expected, last = rnn(x, state)
    stepper = rnn.stepper()
    stepper.state = state
    for t in range(4):
        torch.testing.assert_close(stepper(x[t]), expected[t])
    torch.testing.assert_close(stepper.state, last)


@given(
    nonlinearity=st.sampled_from(FAST),
    layers=st.integers(1, 9),
    batch=st.integers(1, 3),
    input_size=st.sampled_from([4, 6]),
    skip_every=st.sampled_from([None, 1, 2, 4]),
    bias=st.booleans(),
)
@settings(max_examples=30)
def test_steps_in_onnxruntime_make_a_pass(
    nonlinearity: str, layers: int, batch: int, input_size: int, skip_every: int | None, bias: bool
) -> None:
    rnn = bipolar.StackedRNN(input_size, 6, layers, nonlinearity, skip_every=skip_every, bias=bias).eval()
    for parameter in rnn.parameters():
        nn.init.normal_(parameter, std=0.3)
    x, state = torch.randn(4, batch, input_size), torch.randn(layers, batch, 6)
    expected, last = rnn(x, state)
    stepper = rnn.stepper(runtime="onnxruntime")
    stepper.state = state
    for t in range(4):
        torch.testing.assert_close(stepper(x[t]), expected[t], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(stepper.state, last, rtol=1e-4, atol=1e-5)
    stepper.state = None  # and with another batch
    torch.testing.assert_close(stepper(x[0, :1]), rnn.stepper("torch")(x[0, :1]), rtol=1e-4, atol=1e-5)


def test_options_of_activations_reach_onnxruntime() -> None:
    for activation in (nn.ELU(0.7), bipolar.BCELU(0.6, dim=-1), nn.LeakyReLU(0.3), bipolar.BLeakyReLU(0.2, dim=-1)):
        rnn, x = bipolar.StackedRNN(4, 6, 5, activation), torch.randn(2, 4)
        torch.testing.assert_close(rnn.stepper("onnxruntime")(x), rnn.stepper("torch")(x), rtol=1e-4, atol=1e-5)


def test_the_faster_runtime_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rnn = bipolar.StackedRNN(4, 6, 5)
    assert rnn.stepper().runtime == "onnxruntime"
    others: dict[str, Any] = {
        "float64": bipolar.StackedRNN(4, 6, 5, dtype=torch.float64),
        "no operator for GELU": bipolar.StackedRNN(4, 6, 5, nn.GELU()),
    }
    for reason, other in others.items():
        assert other.stepper().runtime == "torch"
        with pytest.raises(ValueError, match=f"runtime: onnxruntime cannot step this stack, .*{reason}"):
            other.stepper("onnxruntime")
    size = 4 * sum(p.numel() for p in rnn.parameters())
    for largest, runtime in ((size, "onnxruntime"), (size - 1, "torch")):
        monkeypatch.setattr(onnx_step, "LARGEST", largest)
        assert rnn.stepper().runtime == runtime
    with pytest.raises(ValueError, match=f"its model holds {size - 1:,} bytes, and the weights are {size:,}"):
        rnn.stepper("onnxruntime")
    monkeypatch.setattr(onnx_step, "find_spec", lambda name: None)
    assert rnn.stepper().runtime == "torch"
    with pytest.raises(ValueError, match=r"needs onnx and onnxruntime: pip install 'bipolar\[onnx\]'"):
        rnn.stepper("onnxruntime")
    with pytest.raises(ValueError, match="runtime: expected one of 'auto', 'torch', 'onnxruntime', got 'jax'"):
        rnn.stepper(runtime="jax")


def test_it_begins_with_zeros_and_has_no_dropout() -> None:
    rnn = bipolar.StackedRNN(6, 6, 9, **NOISE)
    x, stepper = torch.randn(3, 2, 6), rnn.stepper()
    assert stepper.state is None
    outputs = torch.stack([stepper(row) for row in x])
    torch.testing.assert_close(outputs, rnn.eval()(x)[0])
    assert not outputs.requires_grad
    stepper.state = None
    torch.testing.assert_close(stepper(x[0]), outputs[0])


def test_what_it_gives_and_takes_stays() -> None:
    rnn, x = bipolar.StackedRNN(4, 4, 5), torch.randn(1, 4)
    given, stepper = torch.randn(5, 1, 4), rnn.stepper()
    before = x.clone(), given.clone()
    stepper.state = given
    first = stepper(x)
    kept = first.clone(), stepper.state
    stepper(x)
    assert torch.equal(x, before[0])
    assert torch.equal(given, before[1])
    assert torch.equal(first, kept[0])
    assert kept[1] is not None
    torch.testing.assert_close(kept[1][-1], first)


@pytest.mark.parametrize("nonlinearity", ["belu", "bprelu", "prelu"])
def test_another_one_sees_changed_weights(nonlinearity: str) -> None:
    rnn, x = bipolar.StackedRNN(4, 4, 5, nonlinearity), torch.randn(1, 4)
    stepper, before = rnn.stepper(), rnn.stepper()(x)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.mul_(2)
    torch.testing.assert_close(stepper(x), before)
    torch.testing.assert_close(rnn.stepper()(x), rnn.step(x)[0])


def test_an_activation_of_ones_own() -> None:
    rnn = bipolar.StackedRNN(4, 4, 5, nn.Sequential(nn.Tanh(), nn.Dropout(0.5)))
    x, stepper = torch.randn(3, 1, 4), rnn.stepper()
    torch.testing.assert_close(torch.stack([stepper(row) for row in x]), rnn.eval()(x)[0])


def test_autocast_leaves_it_in_its_own_precision() -> None:
    rnn, x = bipolar.StackedRNN(4, 4, 5), torch.randn(2, 4)
    expected = rnn.stepper()(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(rnn.stepper()(x), expected)
        assert rnn.stepper()(nn.functional.linear(x, torch.eye(4))).dtype == torch.float32  # of a layer in bfloat16


def test_bad_input() -> None:
    stepper = bipolar.StackedRNN(4, 6, 5).stepper()
    with pytest.raises(ValueError, match=r"input: expected \(batch, 4\), got shape \(4,\)"):
        stepper(torch.randn(4))
    with pytest.raises(ValueError, match=r"state: expected .* \(5, 'batch', 6\), got \(4, 2, 6\)"):
        stepper.state = torch.randn(4, 2, 6)
    with pytest.raises(TypeError, match=r"state: expected torch.float32 as the weights are, got torch.float64"):
        stepper.state = torch.randn(5, 2, 6, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"input: expected torch.float32 as the weights are, got torch.float64"):
        stepper(torch.randn(2, 4, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"input: expected a tensor, \(batch, 4\), got list"):
        stepper(cast(Any, [1.0, 2.0]))
    with pytest.raises(TypeError, match=r"state: expected a tensor, or None to begin anew, got list"):
        stepper.state = cast(Any, [1.0])
    stepper(torch.randn(2, 4))
    with pytest.raises(ValueError, match=r"input: expected a batch of 2 as in the step before, got 3"):
        stepper(torch.randn(3, 4))
