"""StackedRNN.stepper against a pass over the sequence."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import bipolar
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


def test_another_one_sees_changed_weights() -> None:
    rnn, x = bipolar.StackedRNN(4, 4, 5), torch.randn(1, 4)
    stepper, before = rnn.stepper(), rnn.stepper()(x)
    rnn.load_state_dict(bipolar.StackedRNN(4, 4, 5).state_dict())
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
    stepper(torch.randn(2, 4))
    with pytest.raises(ValueError, match=r"input: expected a batch of 2 as in the step before, got 3"):
        stepper(torch.randn(3, 4))
