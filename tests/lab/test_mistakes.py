"""Gradients with a mistake: right values, wrong gradients."""

import pytest
import torch

import bipolar
from bipolar.lab import mistakes


def test_the_values_are_right_and_the_gradients_wrong() -> None:
    torch.manual_seed(0)
    for nonlinearity, mistake in (("elu", "after skip"), ("elu", "not through time"), ("belu", "not through time")):
        right = bipolar.StackedRNN(6, 6, 8, nonlinearity, dtype=torch.float64)
        wrong = bipolar.StackedRNN(6, 6, 8, nonlinearity, dtype=torch.float64)
        wrong.load_state_dict(right.state_dict())
        mistakes.mistaken(wrong, mistake)
        x = torch.randn(5, 3, 6, dtype=torch.float64)
        outputs = [rnn(x) for rnn in (right, wrong)]
        torch.testing.assert_close(outputs[0], outputs[1])
        for output, _ in outputs:
            output.sum().backward()
        # the highest block's last layer has a wrong derivative, or its past has
        assert not torch.allclose(right.weight_hh_l3.grad, wrong.weight_hh_l3.grad)


def test_one_step_has_no_gradient_through_time_to_lose() -> None:
    right = bipolar.StackedRNN(6, 6, 8, "belu", dtype=torch.float64)
    wrong = bipolar.StackedRNN(6, 6, 8, "belu", dtype=torch.float64)
    wrong.load_state_dict(right.state_dict())
    mistakes.mistaken(wrong, "not through time")
    for rnn in (right, wrong):
        rnn(torch.ones(1, 3, 6, dtype=torch.float64))[0].sum().backward()
    torch.testing.assert_close(right.weight_ih_l0.grad, wrong.weight_ih_l0.grad)


def test_what_cannot_be_mistaken() -> None:
    with pytest.raises(ValueError, match="'after skip' is about ELU"):
        mistakes.mistaken(bipolar.StackedRNN(4, 4, 4, "belu"), "after skip")
    with pytest.raises(ValueError, match="only without dropout"):
        mistakes.mistaken(bipolar.StackedRNN(4, 4, 4, "elu", dropout=0.1), "after skip")
