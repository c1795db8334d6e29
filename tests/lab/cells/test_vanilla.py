"""Vanilla layers against their formula, and tanh and ReLU against torch's own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bipolar.lab.cells.protocol import State
from bipolar.lab.cells.vanilla import Nonlinearity, Vanilla
from tests.lab.cells.twins import BATCH, HIDDEN, INPUT, STEPS, check_copying, check_gradients, check_twin, check_windows


@pytest.mark.parametrize("identity", [False, True])
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_formula(nonlinearity: Nonlinearity, identity: bool) -> None:
    cell = Vanilla(INPUT, HIDDEN, nonlinearity, identity=identity)
    functions: dict[Nonlinearity, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": lambda x: x.clamp(min=0)}
    f = functions[nonlinearity]

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        h = f(cell.input.weight @ x + cell.input.bias + cell.recurrent @ state[0])
        return h, (h,)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)  # no unit is at its kink


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_torch(nonlinearity: Nonlinearity) -> None:
    cell, theirs = Vanilla(INPUT, HIDDEN, nonlinearity), nn.RNN(INPUT, HIDDEN, nonlinearity=nonlinearity)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(cell.input.weight)
        theirs.weight_hh_l0.copy_(cell.recurrent)
        theirs.bias_ih_l0.copy_(cell.input.bias)
        theirs.bias_hh_l0.zero_()
    x = torch.randn(STEPS, BATCH, INPUT)
    for ours, expected in zip(cell(x), theirs(x), strict=True):
        torch.testing.assert_close(ours, expected)


def test_the_identity() -> None:
    cell = Vanilla(100, 200, "relu", identity=True)
    assert torch.equal(cell.recurrent, torch.eye(200))
    assert not cell.input.bias.any()
    assert float(cell.input.weight.detach().std()) == pytest.approx(0.001, rel=0.05)


@pytest.mark.parametrize(("nonlinearity", "identity"), [("tanh", False), ("relu", False), ("relu", True)])
def test_copying(nonlinearity: Nonlinearity, identity: bool) -> None:
    check_copying(Vanilla(4, 32, nonlinearity, identity=identity))
