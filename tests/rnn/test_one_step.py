"""StackedRNN.step against a pass over the sequence."""

import pytest
import torch

import bipolar
from tests.helpers.stacks import FAST, NOISE


@pytest.mark.parametrize("nonlinearity", [*FAST, "gelu", "bsilu"])
def test_steps_make_a_pass(nonlinearity: str) -> None:
    rnn = bipolar.StackedRNN(6, 6, 9, nonlinearity, dtype=torch.float64, **NOISE).eval()
    x, state = torch.randn(5, 3, 6, dtype=torch.float64), torch.randn(9, 3, 6, dtype=torch.float64)
    expected, last = rnn(x, state)
    rnn.train()  # a step has no dropout, ever
    for t in range(5):
        output, state = rnn.step(x[t], state)
        torch.testing.assert_close(output, expected[t])
    torch.testing.assert_close(state, last)
    assert not output.requires_grad


def test_without_batch_and_state() -> None:
    rnn, x = bipolar.StackedRNN(4, 6, 5).eval(), torch.randn(4)
    output, state = rnn.step(x)
    expected, last = rnn(x[None])
    torch.testing.assert_close(output, expected[0])
    torch.testing.assert_close(state, last)
    output, state = rnn.step(x, state)
    torch.testing.assert_close(output, rnn(torch.stack((x, x)))[0][1])


def test_what_it_is_given_stays() -> None:
    rnn, x, state = bipolar.StackedRNN(4, 4, 5), torch.randn(2, 4), torch.randn(5, 2, 4)
    before = x.clone(), state.clone()
    rnn.step(x, state)
    assert torch.equal(x, before[0])
    assert torch.equal(state, before[1])


def test_a_step_under_autocast() -> None:
    rnn = bipolar.StackedRNN(4, 4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        _, state = rnn(torch.randn(3, 2, 4))
        assert rnn.step(torch.randn(2, 4), state)[0].dtype == torch.bfloat16


def test_bad_input() -> None:
    rnn = bipolar.StackedRNN(4, 6, 5)
    with pytest.raises(ValueError, match=r"input: expected \(batch, 4\) or \(4,\), got shape \(2, 3\)"):
        rnn.step(torch.randn(2, 3))
    with pytest.raises(ValueError, match=r"state: expected .* = \(5, 2, 6\), got \(4, 2, 6\)"):
        rnn.step(torch.randn(2, 4), torch.randn(4, 2, 6))
