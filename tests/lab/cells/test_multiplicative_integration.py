"""Multiplicative integration against its formulas."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bipolar.lab.cells.multiplicative_integration import MILSTM, MIRNN
from bipolar.lab.cells.protocol import Cell, State
from tests.lab.cells.twins import BATCH, HIDDEN, INPUT, STEPS, check_copying, check_gradients, check_twin, check_windows


def shaken(cell: Cell) -> Cell:
    """With all parameters different, those that start as constants too."""
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return cell


def integrated(cell: Cell, x: Tensor, h: Tensor, part: slice) -> Tensor:
    m = cell.integration
    wx, uh = m.input[part] @ x, m.recurrent[part] @ h
    return m.alpha[part] * wx * uh + m.beta1[part] * uh + m.beta2[part] * wx + m.bias[part]


def test_mirnn() -> None:
    cell = shaken(MIRNN(INPUT, HIDDEN))

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        h = integrated(cell, x, state[0], slice(None)).tanh()
        return h, (h,)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)


def test_milstm() -> None:
    cell = shaken(MILSTM(INPUT, HIDDEN))

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = state
        i, f, z, o = (integrated(cell, x, h, slice(k * HIDDEN, (k + 1) * HIDDEN)) for k in range(4))
        c = f.sigmoid() * c + i.sigmoid() * z.tanh()
        h = o.sigmoid() * c.tanh()
        return h, (h, c)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)


@pytest.mark.parametrize(("kind", "theirs"), [(MIRNN, nn.RNN), (MILSTM, nn.LSTM)])
def test_without_the_product(kind: Callable[..., Cell], theirs: Callable[..., nn.RNNBase]) -> None:
    """With alpha at 0 and both betas at 1 it is the usual layer."""
    cell = kind(INPUT, HIDDEN, alpha=0.0, beta1=1.0, beta2=1.0)
    usual = theirs(INPUT, HIDDEN)
    with torch.no_grad():
        usual.weight_ih_l0.copy_(cell.integration.input)
        usual.weight_hh_l0.copy_(cell.integration.recurrent)
        usual.bias_ih_l0.zero_()
        usual.bias_hh_l0.zero_()
    x = torch.randn(STEPS, BATCH, INPUT)
    torch.testing.assert_close(cell(x)[0], usual(x)[0])


@pytest.mark.parametrize(
    ("kind", "gates", "starts"), [(MIRNN, 1, (2.0, 0.5, 0.5, 0.0)), (MILSTM, 4, (1.0, 0.5, 0.5, 0.0))]
)
def test_parameters(kind: type[Cell], gates: int, starts: tuple[float, ...]) -> None:
    cell = kind(INPUT, HIDDEN)
    assert sum(p.numel() for p in cell.parameters()) == gates * HIDDEN * (INPUT + HIDDEN + 4)
    m = cell.integration
    for parameter, start in zip((m.alpha, m.beta1, m.beta2, m.bias), starts, strict=True):
        assert torch.equal(parameter.detach(), torch.full((gates * HIDDEN,), start))


@pytest.mark.parametrize("kind", [MIRNN, MILSTM])
def test_copying(kind: type[Cell]) -> None:
    check_copying(kind(4, 24), steps=100, rate=0.03)
