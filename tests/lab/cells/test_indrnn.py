"""IndRNN against its formula, its bound and its batch norm."""

import pytest
import torch
from torch import Tensor

from bipolar.lab.cells.indrnn import IndRNN
from bipolar.lab.cells.protocol import State
from tests.lab.cells.pairs import Pair
from tests.lab.cells.twins import BATCH, HIDDEN, INPUT, STEPS, check_copying, check_gradients, check_twin, check_windows


@pytest.mark.parametrize("batch_norm", [False, True])
def test_formula(batch_norm: bool) -> None:
    cell = IndRNN(INPUT, HIDDEN, batch_norm=batch_norm)
    with torch.no_grad():
        cell.input.bias.normal_()
        if batch_norm:
            for tensor in (cell.norm.running_mean, cell.norm.bias):
                tensor.normal_()
            for tensor in (cell.norm.running_var, cell.norm.weight):
                tensor.uniform_(0.5, 2)

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        a = cell.input.weight @ x + cell.input.bias
        if batch_norm:
            n = cell.norm
            a = (a - n.running_mean) / (n.running_var + n.eps).sqrt() * n.weight + n.bias
        h = (a + cell.recurrent * state[0]).clamp(min=0)
        return h, (h,)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)  # no unit is at its kink


def test_batch_norm_over_time_and_batch() -> None:
    cell = IndRNN(INPUT, HIDDEN, batch_norm=True).double()
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64)
    a = cell.input(x)
    expected = (a - a.mean((0, 1))) / (a.var((0, 1), unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(cell.prepare(x), expected)
    assert not torch.allclose(cell.eval().prepare(x), expected)


def test_batch_norm_with_neutral_statistics_is_none() -> None:
    plain, cell = IndRNN(INPUT, HIDDEN).double(), IndRNN(INPUT, HIDDEN, batch_norm=True).double().eval()
    cell.load_state_dict(plain.state_dict(), strict=False)
    cell.norm.running_var.fill_(1 - cell.norm.eps)
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64)
    for ours, theirs in zip(cell(x), plain(x), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("steps", "bound"), [(None, 1), (4, 2**0.25)])
def test_the_start(steps: int | None, bound: float) -> None:
    cell = IndRNN(10, 4000, steps=steps)
    u = cell.recurrent.detach()
    assert 0 <= float(u.min()) < 0.01
    assert bound - 0.01 < float(u.max()) <= bound
    assert not cell.input.bias.any()
    assert float(cell.input.weight.detach().std()) == pytest.approx((0.4 / 10) ** 0.5, rel=0.05)


@pytest.mark.parametrize(("steps", "bound"), [(None, 1), (5, 2**0.2)])
def test_the_bound(steps: int | None, bound: float) -> None:
    """What an update puts outside comes back in the next pass, and two windows still have one backward pass."""
    cell = IndRNN(INPUT, HIDDEN, steps=steps)
    with torch.no_grad():
        cell.recurrent.copy_(torch.tensor([3.0, -3.0, 0.5, -0.9]))
    x = torch.randn(STEPS, BATCH, INPUT)
    first, state = cell(x)
    second, _ = cell(x, state)
    (first.sum() + second.sum()).backward()
    torch.testing.assert_close(cell.recurrent.detach(), torch.tensor([bound, -bound, 0.5, -0.9]))


def test_a_state_that_is_carried_grows_no_faster_than_its_inputs_add_up() -> None:
    cell = IndRNN(INPUT, HIDDEN)
    with torch.no_grad():
        cell.recurrent.fill_(9.0)  # comes back to the bound
        x = torch.randn(2500, BATCH, INPUT)
        state = None
        for window in x.split(50):
            _, state = cell(window, state)
        assert float(state.max()) <= 1.01 * float(cell.prepare(x).abs().sum(0).max())


def test_arguments() -> None:
    with pytest.raises(ValueError, match="steps: expected a whole number of at least 1, got 0"):
        IndRNN(INPUT, HIDDEN, steps=0)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_parameters(batch_norm: bool) -> None:
    cell = IndRNN(INPUT, HIDDEN, batch_norm=batch_norm)
    assert sum(p.numel() for p in cell.parameters()) == HIDDEN * (INPUT + 2 + 2 * batch_norm)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_copying(batch_norm: bool) -> None:
    layers = (IndRNN(size, 24, batch_norm=batch_norm) for size in (4, 24))
    check_copying(Pair(*layers), steps=300, rate=0.03)
