"""Zoneout and stochastic depth over tanh, GRU and LSTM, against their formulas and by statistics."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from bipolar.lab.cells.gru import GRU
from bipolar.lab.cells.lstm import LSTM
from bipolar.lab.cells.protocol import Cell, Dice, State
from bipolar.lab.cells.vanilla import Vanilla
from bipolar.lab.cells.zoneout import StochasticDepth, Zoneout
from tests.lab.cells.twins import BATCH, HIDDEN, INPUT, STEPS, check_copying, check_gradients, check_twin, check_windows

CELLS = [Vanilla, GRU, LSTM]


def lstm(cell: LSTM, x: Tensor, h: Tensor, c: Tensor) -> State:
    """The hidden units and the cell after a step without zoneout."""
    i, f, o, g = (cell.input @ x + cell.recurrent @ h + cell.bias).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def test_formula_of_evaluation() -> None:
    inner = LSTM(INPUT, HIDDEN)
    cell = Zoneout(inner, (0.05, 0.5))

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = state
        new_h, new_c = lstm(inner, x, h, c)
        h, c = 0.05 * h + 0.95 * new_h, 0.5 * c + 0.5 * new_c  # new_h is from new_c, not from the mixture
        return h, (h, c)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)


def test_formula_of_stochastic_depth() -> None:
    inner = LSTM(INPUT, HIDDEN)
    cell = StochasticDepth(inner, 0.3)

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = (0.3 * old + 0.7 * new for old, new in zip(state, lstm(inner, x, *state), strict=True))
        return h, (h, c)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)


@pytest.mark.parametrize("kind", ["zoneout", "depth"])
def test_formula_of_training(kind: str) -> None:
    inner = LSTM(INPUT, HIDDEN, recurrent_dropout=0.4)
    cell = (Zoneout(inner, (0.3, 0.5)) if kind == "zoneout" else StochasticDepth(inner, 0.5)).double()
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64)
    state = torch.randn(1, BATCH, 2 * HIDDEN, dtype=torch.float64)
    output, last = cell(x, state, generator=generator())
    *updated, kept = cell.draw(STEPS, BATCH, Dice(generator(), x)).each
    for b in range(BATCH):
        h, c = state[0, b].chunk(2)
        for t in range(STEPS):
            i, f, o, g = (inner.input @ x[t, b] + inner.recurrent @ h + inner.bias).chunk(4)
            new_c = f.sigmoid() * c + i.sigmoid() * g.tanh() * kept[t, b]
            new_h = o.sigmoid() * new_c.tanh()
            h = torch.where(updated[0][t, b].bool(), new_h, h)
            c = torch.where(updated[-1][t, b].bool(), new_c, c)
            torch.testing.assert_close(output[t, b], h)
        torch.testing.assert_close(last[0, b], torch.cat((h, c)))


def check_rate(updated: Tensor, rate: float) -> None:
    assert set(updated.unique().tolist()) == {0.0, 1.0}
    held = updated == 0
    assert abs(held.double().mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / held.numel())
    both = (held[1:] & held[:-1]).double().mean()  # independent from step to step
    assert abs(both - rate**2) < 5 * math.sqrt(rate**2 / held[1:].numel())


def test_rates() -> None:
    zoneout = Zoneout(LSTM(INPUT, 50), (0.1, 0.4))
    hidden, memory = zoneout.draw(40, 20, Dice(generator(), torch.zeros(1))).each
    assert hidden.shape == memory.shape == (40, 20, 50)
    check_rate(hidden, 0.1)
    check_rate(memory, 0.4)
    both = ((hidden == 0) & (memory == 0)).double().mean()  # independent of each other
    assert abs(both - 0.04) < 5 * math.sqrt(0.04 / hidden.numel())


def test_rate_of_stochastic_depth() -> None:
    depth = StochasticDepth(LSTM(INPUT, 5), 0.3)
    (updated,) = depth.draw(200, 50, Dice(generator(), torch.zeros(1))).each
    assert updated.shape == (200, 50, 1)  # for all units and both parts
    check_rate(updated, 0.3)


@pytest.mark.parametrize("make", CELLS)
def test_stochastic_depth_holds_a_whole_state(make: type[Cell]) -> None:
    cell = StochasticDepth(make(INPUT, HIDDEN), 0.5)
    state = torch.randn(1, 400, sum(cell.sizes))
    _, last = cell(torch.randn(1, 400, INPUT), state, generator=generator())
    held = last[0] == state[0]
    assert (held.all(dim=-1) | ~held.any(dim=-1)).all()
    assert abs(held[:, 0].double().mean() - 0.5) < 5 * math.sqrt(0.25 / 400)


@pytest.mark.parametrize("make", CELLS)
def test_zoneout_holds_units(make: type[Cell]) -> None:
    cell = Zoneout(make(INPUT, HIDDEN), 0.5)
    state = torch.randn(1, 400, sum(cell.sizes))
    output, last = cell(torch.randn(1, 400, INPUT), state, generator=generator())
    held = last[0] == state[0]
    assert abs(held.double().mean() - 0.5) < 5 * math.sqrt(0.25 / held.numel())
    assert not (held.all(dim=-1) | ~held.any(dim=-1)).all()
    assert torch.equal(output[0], last[0, :, :HIDDEN])


@pytest.mark.parametrize("make", CELLS)
@pytest.mark.parametrize("training", [True, False])
def test_a_rate_of_zero_is_the_cell(make: type[Cell], training: bool) -> None:
    inner = make(INPUT, HIDDEN)
    x = torch.randn(STEPS, BATCH, INPUT)
    expected = inner(x)
    for cell in (Zoneout(inner, 0.0), Zoneout(inner, [0.0] * len(inner.sizes)), StochasticDepth(inner, 0.0)):
        for ours, theirs in zip(cell.train(training)(x), expected, strict=True):
            assert torch.equal(ours, theirs)


def test_one_rate_of_zero() -> None:
    """A part without zoneout is the cell's own, in training too."""
    inner = LSTM(INPUT, HIDDEN)
    x, state = torch.randn(1, BATCH, INPUT), torch.randn(1, BATCH, 2 * HIDDEN)
    plain = inner(x, state)[1]
    held = Zoneout(inner, (0.0, 0.999999))(x, state, generator=generator())[1]
    assert torch.equal(held[..., :HIDDEN], plain[..., :HIDDEN])
    assert torch.equal(held[..., HIDDEN:], state[..., HIDDEN:])


def test_the_beginning_and_the_parameters_are_those_of_the_cell() -> None:
    class Begun(Vanilla):
        def begin(self, batch: int, like: Tensor) -> State:
            return (like.new_ones(batch, self.hidden_size),)

    inner = Begun(INPUT, HIDDEN)
    for cell in (Zoneout(inner, 0.999999), StochasticDepth(inner, 0.999999)):
        assert torch.equal(cell(torch.randn(STEPS, BATCH, INPUT))[0], torch.ones(STEPS, BATCH, HIDDEN))
        assert list(map(id, cell.parameters())) == list(map(id, inner.parameters()))


def test_mistakes() -> None:
    class Doubling(Vanilla):
        def step(self, x: Tensor, state: State, once: Sequence[Tensor], each: Sequence[Tensor]) -> tuple[Tensor, State]:
            h, state = super().step(x, state, once, each)
            return 2 * h, state

    with pytest.raises(ValueError, match=r"rates: expected one, or one for each of 2 parts, got \[0.1, 0.1, 0.1\]"):
        Zoneout(LSTM(INPUT, HIDDEN), (0.1, 0.1, 0.1))
    with pytest.raises(ValueError, match="rates: expected a rate from 0 up to, not including, 1, got 1"):
        Zoneout(LSTM(INPUT, HIDDEN), (0.1, 1.0))
    with pytest.raises(ValueError, match="rate: expected a rate from 0 up to, not including, 1, got -1"):
        StochasticDepth(GRU(INPUT, HIDDEN), -1.0)
    with pytest.raises(TypeError, match="cell: expected one whose output is the first part of its state, got Doubling"):
        Zoneout(Doubling(INPUT, HIDDEN), 0.1)(torch.randn(STEPS, BATCH, INPUT))


@pytest.mark.parametrize("make", CELLS)
def test_copying_with_zoneout(make: type[Cell]) -> None:
    check_copying(Zoneout(make(4, 24), (0.02, 0.2) if make is LSTM else 0.02), steps=120, rate=0.02)


@pytest.mark.parametrize("make", CELLS)
def test_copying_with_stochastic_depth(make: type[Cell]) -> None:
    check_copying(StochasticDepth(make(4, 24), 0.01), steps=120, rate=0.02)
