"""DOT(S)-RNN against its formulas and its published size."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bipolar.lab.cells.dots import DOTS
from bipolar.lab.cells.protocol import State
from bipolar.lab.cells.vanilla import Nonlinearity
from tests.lab.cells.twins import BATCH, INPUT, check_copying, check_gradients, check_twin, check_windows

OUTPUT, STATE, BETWEEN = 6, 4, 5
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": lambda x: x.clamp(min=0)}


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_formula(nonlinearity: Nonlinearity) -> None:
    cell = DOTS(INPUT, OUTPUT, state_size=STATE, transition_size=BETWEEN, nonlinearity=nonlinearity)
    f = FUNCTIONS[nonlinearity]

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        h = state[0]
        w1, w2 = cell.input.weight.split((BETWEEN, STATE))
        b1, b2 = cell.input.bias.split((BETWEEN, STATE))
        u1, shortcut = cell.recurrent.split((BETWEEN, STATE))
        z = f(w1 @ x + u1 @ h + b1)
        h = torch.tanh(cell.transition @ z + shortcut @ h + w2 @ x + b2)
        return f(cell.output.weight @ h + cell.output.bias), (h,)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)  # no unit is at its kink


def test_step() -> None:
    """One step by itself is a sequence of one."""
    cell = DOTS(INPUT, OUTPUT, state_size=STATE)
    x = torch.randn(1, BATCH, INPUT)
    output, (h,) = cell.step(cell.prepare(x)[0], cell.begin(BATCH, x), (), ())
    outputs, state = cell(x)
    torch.testing.assert_close(cell.finish(output), outputs[0])
    torch.testing.assert_close(h, state[0])


def test_the_published_size() -> None:
    """790 thousand weights with a softmax over 50 characters; biases come on top."""
    cell = DOTS(50, 600, state_size=400)
    weights = sum(p.numel() for p in cell.parameters() if p.ndim == 2)
    assert weights + 600 * 50 == 790_000
    assert sum(p.numel() for p in cell.parameters()) == weights + 400 + 400 + 600


def test_arguments() -> None:
    with pytest.raises(ValueError, match="state_size: expected a whole number of at least 1, got 0"):
        DOTS(INPUT, OUTPUT, state_size=0)
    with pytest.raises(ValueError, match="nonlinearity: expected one of tanh, relu, got 'elu'"):
        DOTS(INPUT, OUTPUT, nonlinearity="elu")


def test_copying() -> None:
    check_copying(DOTS(4, 24, state_size=20), steps=80)
