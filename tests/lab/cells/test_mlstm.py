"""The multiplicative LSTM against its formulas."""

import torch
from torch import Tensor

from bipolar.lab.cells.mlstm import MLSTM
from bipolar.lab.cells.protocol import State
from tests.lab.cells.twins import HIDDEN, INPUT, check_copying, check_gradients, check_twin, check_windows


def test_formula() -> None:
    cell = MLSTM(INPUT, HIDDEN)
    with torch.no_grad():
        cell.bias.add_(0.3 * torch.randn_like(cell.bias))

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = state
        w_mx, *w_x = cell.input.split(HIDDEN)
        m = (w_mx @ x) * (cell.multiplier @ h)
        i, f, u, o = (
            w @ x + r @ m + b
            for w, r, b in zip(w_x, cell.recurrent.split(HIDDEN), cell.bias.split(HIDDEN), strict=True)
        )
        c = f.sigmoid() * c + i.sigmoid() * u
        h = (o.sigmoid() * c).tanh()
        return h, (h, c)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)


def test_the_forget_bias() -> None:
    bias = MLSTM(INPUT, HIDDEN, forget_bias=3.0).bias.detach()
    assert torch.equal(bias, torch.tensor([0.0, 3.0, 0.0, 0.0]).repeat_interleave(HIDDEN))


def test_the_published_size() -> None:
    """1,900 units on enwik8's 205 bytes, with a softmax: 20 million."""
    with torch.device("meta"):
        cell = MLSTM(205, 1900)
    count = sum(p.numel() for p in cell.parameters())
    assert count == 5 * 1900 * 205 + 5 * 1900**2 + 4 * 1900
    assert round((count + 205 * 1901) / 1e6) == 20


def test_copying() -> None:
    check_copying(MLSTM(4, 24), steps=100, rate=0.03)
