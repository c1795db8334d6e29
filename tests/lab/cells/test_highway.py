"""The recurrent highway network against its formulas, and its dropout."""

import pytest
import torch
from torch import Tensor

from bipolar.lab.cells.highway import Highway
from bipolar.lab.cells.protocol import Dice, State
from tests.lab.cells.noise import check_rate
from tests.lab.cells.twins import BATCH, HIDDEN, INPUT, STEPS, check_copying, check_gradients, check_twin, check_windows


def formula(cell: Highway, x: Tensor, s: Tensor, mask: Tensor | float = 1.0) -> Tensor:
    for level in range(len(cell.recurrent)):
        (w_h, w_t), (r_h, r_t) = cell.input.split(HIDDEN), cell.recurrent[level].split(HIDDEN)
        b_h, b_t = cell.biases[level].split(HIDDEN)
        first = 1.0 if level == 0 else 0.0
        h = torch.tanh(first * (w_h @ x) + r_h @ (mask * s) + b_h)
        t = torch.sigmoid(first * (w_t @ x) + r_t @ (mask * s) + b_t)
        s = h * t + s * (1 - t)
    return s


@pytest.mark.parametrize("depth", [1, 3])
def test_formula(depth: int) -> None:
    cell = Highway(INPUT, HIDDEN, depth=depth, transform_bias=-1.0, init_scale=0.7)

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        s = formula(cell, x, state[0])
        return s, (s,)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)


def test_dropout() -> None:
    """One mask for the input and one for the state, of all steps and depths; in evaluation there is none."""
    settings = {"depth": 2, "transform_bias": -1.0, "init_scale": 0.7}
    cell = Highway(INPUT, HIDDEN, **settings, input_dropout=0.4, hidden_dropout=0.2).double()
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64)
    output, _ = cell(x, generator=torch.Generator().manual_seed(3))
    source = torch.Generator().manual_seed(3)
    of_input = (torch.rand(BATCH, INPUT, generator=source) >= 0.4) / 0.6
    of_state = (torch.rand(BATCH, HIDDEN, generator=source) >= 0.2) / 0.8
    for b in range(BATCH):
        s = torch.zeros(HIDDEN, dtype=torch.float64)
        for t in range(STEPS):
            s = formula(cell, x[t, b] * of_input[b], s, of_state[b])
            torch.testing.assert_close(output[t, b], s)
    plain = Highway(INPUT, HIDDEN, **settings).double()
    plain.load_state_dict(cell.state_dict())
    assert torch.equal(cell.eval()(x)[0], plain(x)[0])


def test_masks() -> None:
    drawn = Highway(INPUT, 100, hidden_dropout=0.1).draw(7, 200, Dice(torch.Generator().manual_seed(0), torch.empty(0)))
    assert drawn.each == ()
    (mask,) = drawn.once
    check_rate((mask * 0.9).round(), 0.1)


def test_the_rate_of_the_input() -> None:
    """A layer of depth one that adds up nothing but its input tells which inputs it saw."""
    cell = Highway(1, 1, depth=1, init_scale=0.0, transform_bias=50.0, input_dropout=0.3)
    with torch.no_grad():
        cell.input[0] = 1.0
    output, _ = cell(torch.ones(3, 4000, 1), generator=torch.Generator().manual_seed(0))
    kept = (output != 0).float()
    assert torch.equal(kept[0], kept[2])
    check_rate(kept[0], 0.3)


def test_the_start() -> None:
    cell = Highway(100, 50, depth=3)
    for bias in cell.biases:
        assert torch.equal(bias[50:].detach(), torch.full((50,), -4.0))
    for parameter in (cell.input, *cell.recurrent):
        assert 0.03 < float(parameter.detach().abs().max()) <= 0.04


def test_the_published_size() -> None:
    """46 million on enwik8, with its embedding of 205 bytes and its softmax."""
    with torch.device("meta"):
        cell = Highway(205, 1500, depth=10)
    count = sum(p.numel() for p in cell.parameters())
    assert count == 2 * 1500 * 205 + 10 * (2 * 1500**2 + 2 * 1500)
    assert round((count + 205 * 205 + 205 * 1501) / 1e6, 1) == 46.0


def test_arguments() -> None:
    with pytest.raises(ValueError, match="depth: expected a whole number of at least 1, got 0"):
        Highway(INPUT, HIDDEN, depth=0)
    with pytest.raises(ValueError, match=r"hidden_dropout: expected a rate .*, got -0\.1"):
        Highway(INPUT, HIDDEN, hidden_dropout=-0.1)


def test_copying() -> None:
    """At its published depth and start, where hardly a gate is open."""
    check_copying(Highway(4, 24), steps=120, rate=0.03)
