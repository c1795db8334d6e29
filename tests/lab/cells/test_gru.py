"""The GRU against its formulas, and one form of it against torch's own."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from bipolar.lab.cells.gru import GRU, Reset
from bipolar.lab.cells.protocol import Dice, State
from tests.lab.cells.noise import check_rate
from tests.lab.cells.twins import BATCH, HIDDEN, INPUT, STEPS, check_copying, check_gradients, check_twin, check_windows


def randomised(cell: GRU) -> GRU:
    for bias in (cell.bias, cell.inner_bias):
        if bias is not None:
            nn.init.normal_(bias, std=0.5)
    return cell


@pytest.mark.parametrize("reset", ["before", "after"])
def test_formula(reset: Reset) -> None:
    cell = randomised(GRU(INPUT, HIDDEN, reset=reset))

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        (h,) = state
        (wr, wz, wn), (ur, uz, un), (br, bz, bn) = (p.chunk(3) for p in (cell.input, cell.recurrent, cell.bias))
        r = (wr @ x + ur @ h + br).sigmoid()
        z = (wz @ x + uz @ h + bz).sigmoid()
        inner = un @ (r * h) if reset == "before" else r * (un @ h + cell.inner_bias)
        h = z * h + (1 - z) * (wn @ x + bn + inner).tanh()
        return h, (h,)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)


@pytest.mark.parametrize("reset", ["before", "after"])
@pytest.mark.parametrize("name", ["recurrent_dropout", "rnn_drop"])
def test_where_dropout_falls(name: str, reset: Reset) -> None:
    """Training against the formulas with the masks that the cell draws, and evaluation against no dropout."""
    cell = randomised(GRU(INPUT, HIDDEN, reset=reset, **cast(Any, {name: 0.3}))).double()
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64)
    state = torch.randn(1, BATCH, HIDDEN, dtype=torch.float64)
    once, each = cell.draw(STEPS, BATCH, Dice(torch.Generator().manual_seed(1), x))
    output, _ = cell(x, state, generator=torch.Generator().manual_seed(1))
    (wr, wz, wn), (ur, uz, un), (br, bz, bn) = (p.chunk(3) for p in (cell.input, cell.recurrent, cell.bias))
    for b in range(BATCH):
        h = state[0, b]
        for t in range(STEPS):
            seen = h * once[0][b] if once else h
            r = (wr @ x[t, b] + ur @ seen + br).sigmoid()
            z = (wz @ x[t, b] + uz @ seen + bz).sigmoid()
            inner = un @ (r * seen) if reset == "before" else r * (un @ seen + cell.inner_bias)
            h = z * h + (1 - z) * (wn @ x[t, b] + bn + inner).tanh() * (each[0][t, b] if each else 1)
            torch.testing.assert_close(output[t, b], h)
    plain = GRU(INPUT, HIDDEN, reset=reset).double()
    plain.load_state_dict(cell.state_dict())
    assert torch.equal(cell.eval()(x, state)[0], plain(x, state)[0])


def test_rates() -> None:
    cell = GRU(INPUT, 50, recurrent_dropout=0.3, rnn_drop=0.2)
    (once,), (each,) = cell.draw(40, 20, Dice(torch.Generator().manual_seed(1), torch.zeros(1)))
    assert (once.shape, each.shape) == ((20, 50), (40, 20, 50))
    check_rate((once * 0.8).round(), 0.2)
    check_rate((each * 0.7).round(), 0.3)


def test_torch() -> None:
    cell, theirs = randomised(GRU(INPUT, HIDDEN, reset="after")), nn.GRU(INPUT, HIDDEN)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(cell.input)
        theirs.weight_hh_l0.copy_(cell.recurrent)
        theirs.bias_ih_l0.copy_(cell.bias)
        theirs.bias_hh_l0.zero_()[2 * HIDDEN :].copy_(cell.inner_bias)
    x = torch.randn(STEPS, BATCH, INPUT)
    for ours, expected in zip(cell(x), theirs(x), strict=True):
        torch.testing.assert_close(ours, expected)


def test_the_start() -> None:
    cell = GRU(INPUT, HIDDEN)
    for part in cell.recurrent.detach().chunk(3):
        torch.testing.assert_close(part @ part.T, torch.eye(HIDDEN))
    assert not cell.bias.any()


@pytest.mark.parametrize(("reset", "extra"), [("before", 0), ("after", HIDDEN)])
def test_parameters(reset: Reset, extra: int) -> None:
    cell = GRU(INPUT, HIDDEN, reset=reset)
    assert sum(p.numel() for p in cell.parameters()) == 3 * HIDDEN * (INPUT + HIDDEN + 1) + extra


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="reset: expected one of 'before', 'after', got 'never'"):
        GRU(INPUT, HIDDEN, reset="never")
    with pytest.raises(ValueError, match=r"rnn_drop: expected a rate .*, got 1\.0"):
        GRU(INPUT, HIDDEN, rnn_drop=1.0)


@pytest.mark.parametrize("reset", ["before", "after"])
def test_copying(reset: Reset) -> None:
    check_copying(GRU(4, 24, reset=reset), steps=150)
