"""The minimal GRU against its formulas; its fast path against its step."""

import pytest
import torch
from torch import Tensor

from bipolar.lab.cells.mingru import MinGRU
from bipolar.lab.cells.protocol import Cell, State
from tests.lab.cells.pairs import Pair
from tests.lab.cells.twins import HIDDEN, INPUT, check_copying, check_gradients, check_twin, check_windows


@pytest.mark.parametrize("positive", [False, True])
def test_formula(positive: bool) -> None:
    cell = MinGRU(INPUT, HIDDEN, positive=positive)

    def g(a: float) -> float:
        if not positive:
            return a
        return a + 0.5 if a >= 0 else 1 / (1 + 2.718281828459045**-a)

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        w_z, w_h = cell.input.weight.chunk(2)
        b_z, b_h = cell.input.bias.chunk(2)
        z = (w_z @ x + b_z).sigmoid()
        candidate = torch.tensor([g(a) for a in (w_h @ x + b_h).tolist()], dtype=torch.float64)
        h = (1 - z) * state[0] + z * candidate
        return h, (h,)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)  # g is smooth but at zero, where its value and slope are nearly the same from both sides


@pytest.mark.parametrize("positive", [False, True])
def test_the_fast_path(positive: bool) -> None:
    """The same as step by step, values and gradients, over a long window, gates shut and open among them."""
    cell = MinGRU(INPUT, HIDDEN, positive=positive).double()
    with torch.no_grad():
        cell.input.weight.mul_(20)
    x = torch.randn(200, 3, INPUT, dtype=torch.float64)
    state = torch.randn(1, 3, HIDDEN, dtype=torch.float64)
    found = []
    for forward in (cell.forward, lambda x, state: Cell.forward(cell, x, state)):
        inputs = x.clone().requires_grad_(), state.clone().requires_grad_()
        output, last = forward(*inputs)
        loss = (output * torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None, None]).sum()
        found.append((output, last, *torch.autograd.grad(loss, (*inputs, *cell.parameters()))))
    for fast, slow in zip(*found, strict=True):
        torch.testing.assert_close(fast, slow)


def test_parameters() -> None:
    assert sum(p.numel() for p in MinGRU(INPUT, HIDDEN).parameters()) == 2 * HIDDEN * (INPUT + 1)


def test_copying() -> None:
    check_copying(Pair(MinGRU(4, 32), MinGRU(32, 32)), steps=300, rate=0.03)
