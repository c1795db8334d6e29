"""The Skipping-RNN against its formula."""

import pytest
import torch
from torch import Tensor

from bipolar.lab.cells.protocol import State
from bipolar.lab.cells.skipping import SkippingRNN
from bipolar.lab.cells.vanilla import Vanilla
from tests.lab.cells.twins import HIDDEN, INPUT, STEPS, check_copying, check_gradients, check_twin, check_windows


@pytest.mark.parametrize("skip", [2, 3])
def test_formula(skip: int) -> None:
    cell = SkippingRNN(INPUT, HIDDEN, skip=skip)
    u, v = cell.recurrent.double().split(HIDDEN, dim=1)

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        history = list(state)  # the state of one step ago, two, ...
        h = (cell.input.weight @ x + u @ history[0] + v @ history[skip - 1] + cell.input.bias).clamp(min=0)
        return h, tuple([h, *history][:skip])

    check_twin(cell, twin)
    check_windows(cell)


def test_the_skip() -> None:
    """Without U, the first input comes back after the skip, and not before."""
    cell = SkippingRNN(INPUT, HIDDEN, skip=3)
    with torch.no_grad():
        cell.input.weight.fill_(1.0)
        cell.input.bias.zero_()
        cell.recurrent[:, :HIDDEN] = 0.0
        cell.recurrent[:, HIDDEN:] = torch.eye(HIDDEN)
    x = torch.zeros(STEPS, 1, INPUT)
    x[0] = 1.0
    assert cell(x)[0][:, 0, 0].tolist() == [3.0, 0.0, 0.0, 3.0, 0.0]


def test_arguments() -> None:
    with pytest.raises(ValueError, match="skip: expected a number of steps of at least 2, got 1"):
        SkippingRNN(INPUT, HIDDEN, skip=1)


def test_parameters() -> None:
    assert sum(p.numel() for p in SkippingRNN(INPUT, HIDDEN).parameters()) == HIDDEN * (INPUT + 2 * HIDDEN + 1)


def test_gradients() -> None:
    """Where no unit is near its kink, the gradients are those of finite differences."""
    check_gradients(SkippingRNN(INPUT, HIDDEN, skip=3))  # no unit is at its kink


def test_copying() -> None:
    check_copying(SkippingRNN(4, 24), steps=100)


def test_without_the_skip_it_is_a_rectified_layer() -> None:
    cell, plain = SkippingRNN(INPUT, HIDDEN), Vanilla(INPUT, HIDDEN, "relu")
    with torch.no_grad():
        cell.recurrent[:, HIDDEN:].zero_()
        plain.recurrent.copy_(cell.recurrent[:, :HIDDEN])
    plain.input.load_state_dict(cell.input.state_dict())
    x = torch.randn(STEPS, 2, INPUT)
    torch.testing.assert_close(cell(x)[0], plain(x)[0])
