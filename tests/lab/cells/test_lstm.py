"""The LSTM against its formulas and torch's own, with each of its options."""

import math

import pytest
import torch
from torch import Tensor, nn

from bipolar.lab.cells.lstm import LSTM
from bipolar.lab.cells.protocol import Dice, State
from tests.lab.cells.twins import BATCH, HIDDEN, INPUT, STEPS, check_copying, check_gradients, check_twin, check_windows


def sums_of(cell: LSTM, x: Tensor, h: Tensor) -> tuple[State, State]:
    """Both products of the gates i, f, o and g."""
    return (cell.input @ x).chunk(4), (cell.recurrent @ h).chunk(4)


def randomised(cell: LSTM) -> LSTM:
    """Gains and biases that are not at their starts, where twins could not tell them from nothing."""
    for name, parameter in cell.named_parameters():
        if "bias" in name or "gain" in name or "norm" in name:
            nn.init.normal_(parameter, 0.7, 0.5)
    return cell


def test_formula() -> None:
    cell = randomised(LSTM(INPUT, HIDDEN))

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = state
        wx, uh = sums_of(cell, x, h)
        i, f, o, g = (w + u + b for w, u, b in zip(wx, uh, cell.bias.chunk(4), strict=True))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return h, (h, c)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)


def test_torch() -> None:
    cell, theirs = randomised(LSTM(INPUT, HIDDEN)), nn.LSTM(INPUT, HIDDEN)
    with torch.no_grad():
        for ours, name in ((cell.input, "weight_ih"), (cell.recurrent, "weight_hh"), (cell.bias, "bias_ih")):
            i, f, o, g = ours.chunk(4)
            getattr(theirs, f"{name}_l0").copy_(torch.cat((i, f, g, o)))
        theirs.bias_hh_l0.zero_()
    x = torch.randn(STEPS, BATCH, INPUT)
    output, state = cell(x)
    expected, (h, c) = theirs(x)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(state, torch.cat((h, c), dim=-1))


def test_layer_norm() -> None:
    cell = randomised(LSTM(INPUT, HIDDEN, layer_norm=True))

    def normed(x: Tensor) -> Tensor:
        centred = x - x.sum() / HIDDEN
        return centred / (centred.pow(2).sum() / HIDDEN + 1e-3).sqrt()

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = state
        wx, uh = sums_of(cell, x, h)
        gates = zip(wx, uh, cell.gain.chunk(4), cell.bias.chunk(4), strict=True)
        i, f, o, g = (normed(w + u) * gain + b for w, u, gain, b in gates)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * (normed(c) * cell.norm.weight + cell.norm.bias).tanh()
        return h, (h, c)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)


def test_weight_norm() -> None:
    cell = randomised(LSTM(INPUT, HIDDEN, weight_norm=True))

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = state
        wx = torch.stack([gain * (row @ x) / row.norm() for row, gain in zip(cell.input, cell.input_gain, strict=True)])
        uh = torch.stack(
            [gain * (row @ h) / row.norm() for row, gain in zip(cell.recurrent, cell.recurrent_gain, strict=True)]
        )
        i, f, o, g = (wx + uh + cell.bias).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return h, (h, c)

    check_twin(cell, twin)
    check_windows(cell)
    check_gradients(cell)


def test_weight_norm_starts_as_the_weights_are() -> None:
    plain, cell = LSTM(INPUT, HIDDEN), LSTM(INPUT, HIDDEN, weight_norm=True)
    cell.load_state_dict(plain.state_dict(), strict=False)
    with torch.no_grad():
        cell.input_gain.copy_(plain.input.norm(dim=1))
    x = torch.randn(STEPS, BATCH, INPUT)
    torch.testing.assert_close(cell(x), plain(x))  # rows of the recurrent weight have a norm of 1 at the start
    torch.testing.assert_close(cell.recurrent_gain, torch.ones(4 * HIDDEN))
    fresh = LSTM(INPUT, HIDDEN, weight_norm=True)
    torch.testing.assert_close(fresh.input_gain, fresh.input.norm(dim=1))


def test_the_start() -> None:
    cell = LSTM(INPUT, HIDDEN, forget_bias=2.0)
    for part in cell.recurrent.detach().chunk(4):
        torch.testing.assert_close(part @ part.T, torch.eye(HIDDEN))
    i, f, o, g = cell.bias.detach().chunk(4)
    assert (f == 2).all()
    assert not torch.cat((i, o, g)).any()


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        ({}, 0),
        ({"recurrent_dropout": 0.1, "rnn_drop": 0.1}, 0),
        ({"layer_norm": True}, 6 * HIDDEN),  # gains of the gates; gain and bias of the cell
        ({"weight_norm": True}, 8 * HIDDEN),
    ],
)
def test_parameters(options: dict[str, float | bool], extra: int) -> None:
    cell = LSTM(INPUT, HIDDEN, **options)
    assert sum(p.numel() for p in cell.parameters()) == 4 * HIDDEN * (INPUT + HIDDEN + 1) + extra


@pytest.mark.parametrize(("layer_norm", "millions"), [(False, 4.25), (True, 4.26)])
def test_published_parameters(layer_norm: bool, millions: float) -> None:
    """1,000 units and a decoder, for 50 characters, have as many as in the tables of Ha et al. (2016)."""
    with torch.device("meta"):
        layer = LSTM(50, 1000, layer_norm=layer_norm)
    assert round(sum(p.numel() for p in [*layer.parameters(), *nn.Linear(1000, 50).parameters()]) / 1e6, 2) == millions


RATE = 0.3


@pytest.mark.parametrize("name", ["recurrent_dropout", "rnn_drop"])
def test_rates(name: str) -> None:
    cell = LSTM(INPUT, 50, **{name: RATE})
    steps, batch = 40, 20
    (_, *once), each = cell.draw(steps, batch, Dice(torch.Generator().manual_seed(1), torch.zeros(1)))
    masks = each if name == "recurrent_dropout" else once
    (mask,) = masks
    assert mask.shape == ((steps, batch, 50) if name == "recurrent_dropout" else (batch, 50))
    dropped = mask == 0
    torch.testing.assert_close(mask[~dropped], torch.full_like(mask[~dropped], 1 / (1 - RATE)))
    share = dropped.double().mean()
    assert abs(share - RATE) < 5 * math.sqrt(RATE * (1 - RATE) / mask.numel())
    if name == "recurrent_dropout":  # independent from step to step
        both = (dropped[1:] & dropped[:-1]).double().mean()
        assert abs(both - RATE**2) < 5 * math.sqrt(RATE**2 / mask[1:].numel())


@pytest.mark.parametrize("name", ["recurrent_dropout", "rnn_drop"])
def test_where_dropout_falls(name: str) -> None:
    """Training against the formulas with the masks that the cell draws, and evaluation against no dropout."""
    cell = LSTM(INPUT, HIDDEN, **{name: RATE}).double()
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64)
    state = torch.randn(1, BATCH, 2 * HIDDEN, dtype=torch.float64)
    (_, *once), each = cell.draw(STEPS, BATCH, Dice(torch.Generator().manual_seed(1), x))
    output, _ = cell(x, state, generator=torch.Generator().manual_seed(1))
    for b in range(BATCH):
        h, c = state[0, b].chunk(2)
        for t in range(STEPS):
            wx, uh = sums_of(cell, x[t, b], h * once[0][b] if once else h)
            i, f, o, g = (w + u + k for w, u, k in zip(wx, uh, cell.bias.chunk(4), strict=True))
            c = f.sigmoid() * c + i.sigmoid() * g.tanh() * (each[0][t, b] if each else 1)
            h = o.sigmoid() * c.tanh()
            torch.testing.assert_close(output[t, b], h)
    plain = LSTM(INPUT, HIDDEN).double()
    plain.load_state_dict(cell.state_dict())
    cell.eval()
    assert torch.equal(cell(x, state)[0], plain(x, state)[0])
    assert not torch.allclose(output, plain(x, state)[0])


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="weight_norm: expected False with layer_norm"):
        LSTM(INPUT, HIDDEN, layer_norm=True, weight_norm=True)
    with pytest.raises(ValueError, match="recurrent_dropout: expected a rate from 0 up to, not including, 1, got 1"):
        LSTM(INPUT, HIDDEN, recurrent_dropout=1.0)
    with pytest.raises(ValueError, match=r"rnn_drop: expected a rate from 0 up to, not including, 1, got -0\.1"):
        LSTM(INPUT, HIDDEN, rnn_drop=-0.1)


@pytest.mark.parametrize("options", [{"recurrent_dropout": 0.1, "rnn_drop": 0.1}, {"layer_norm": True}])
def test_copying(options: dict[str, float | bool]) -> None:
    check_copying(LSTM(4, 24, **options), steps=150)


def test_copying_with_weight_norm() -> None:
    check_copying(LSTM(4, 24, weight_norm=True), steps=150, rate=0.02)


def test_layer_norm_at_its_affine_start() -> None:
    cell = LSTM(INPUT, HIDDEN, layer_norm=True)
    assert cell.norm is not None
    assert cell.gain is not None
    for gain in (cell.gain, cell.norm.weight):
        assert torch.equal(gain, torch.ones_like(gain))
    assert not cell.norm.bias.any()
