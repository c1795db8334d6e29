"""The Delta-RNN against its formulas, and its dropout."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bipolar.lab.cells.delta_rnn import DeltaRNN, Outer
from bipolar.lab.cells.protocol import Dice, State
from tests.lab.cells.noise import check_rate
from tests.lab.cells.twins import BATCH, HIDDEN, INPUT, STEPS, check_copying, check_gradients, check_twin, check_windows

OUTER: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x.clamp(min=0),
    "tanh": torch.tanh,
    "identity": lambda x: x,
}


def shaken(cell: DeltaRNN) -> DeltaRNN:
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return cell


def formula(cell: DeltaRNN, x: Tensor, h: Tensor, outer: str, mask: Tensor | float = 1.0) -> Tensor:
    vh, wx = cell.recurrent @ h, cell.input @ x
    first, second = cell.alpha * vh * wx, cell.beta1 * vh + cell.beta2 * wx
    z = (first + second + cell.bias).tanh() * mask
    r = (wx + cell.gate_bias).sigmoid()
    return OUTER[outer]((1 - r) * z + r * h)


@pytest.mark.parametrize("outer", ["relu", "tanh", "identity"])
def test_formula(outer: Outer) -> None:
    cell = shaken(DeltaRNN(INPUT, HIDDEN, outer=outer))

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        h = formula(cell, x, state[0], outer)
        return h, (h,)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)  # no unit is at its kink


def test_dropout() -> None:
    """Each step has its own mask, on the candidate alone; in evaluation there is none."""
    cell = shaken(DeltaRNN(INPUT, HIDDEN, outer="identity", dropout=0.3)).double()
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64)
    output, _ = cell(x, generator=torch.Generator().manual_seed(3))
    masks = (torch.rand(STEPS, BATCH, HIDDEN, generator=torch.Generator().manual_seed(3)) >= 0.3) / 0.7
    for b in range(BATCH):
        h = torch.zeros(HIDDEN, dtype=torch.float64)
        for t in range(STEPS):
            h = formula(cell, x[t, b], h, "identity", masks[t, b])
            torch.testing.assert_close(output[t, b], h)
    plain = DeltaRNN(INPUT, HIDDEN, outer="identity").double()
    plain.load_state_dict(cell.state_dict())
    assert torch.equal(cell.eval()(x)[0], plain(x)[0])


def test_masks() -> None:
    drawn = DeltaRNN(INPUT, 50, dropout=0.3).draw(40, 10, Dice(torch.Generator().manual_seed(0), torch.empty(0)))
    assert drawn.once == ()
    (mask,) = drawn.each
    kept = (mask * 0.7).round()
    torch.testing.assert_close(kept / 0.7, mask)
    check_rate(kept, 0.3)
    check_rate((kept[1:] == kept[:-1]).float(), 2 * 0.3 * 0.7)  # neighbours in time are independent


def test_arguments() -> None:
    with pytest.raises(ValueError, match=r"dropout: expected a rate .*, got 1\.0"):
        DeltaRNN(INPUT, HIDDEN, dropout=1.0)
    with pytest.raises(ValueError, match="outer: expected one of relu, tanh, identity, got 'elu'"):
        DeltaRNN(INPUT, HIDDEN, outer="elu")


def test_parameters() -> None:
    cell = DeltaRNN(INPUT, HIDDEN)
    assert sum(p.numel() for p in cell.parameters()) == HIDDEN * (INPUT + HIDDEN + 5)
    for parameter, start in ((cell.alpha, 2.0), (cell.beta1, 1.0), (cell.beta2, 1.0), (cell.gate_bias, 0.0)):
        assert torch.equal(parameter.detach(), torch.full((HIDDEN,), start))


def test_copying() -> None:
    check_copying(DeltaRNN(4, 24, dropout=0.05), steps=100, rate=0.03)
