"""The batch-normalised LSTM against its formulas, in training and in evaluation."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from bipolar.lab.cells.lstm import LSTM
from bipolar.lab.cells.protocol import State
from bipolar.lab.cells.recurrent_batch_norm import BatchNormLSTM, StepBatchNorm
from bipolar.lab.cells.zoneout import Zoneout
from tests.lab.cells.twins import BATCH, HIDDEN, INPUT, STEPS, check_copying, check_gradients, check_twin, check_windows

MAX = 3  # fewer than STEPS


def randomised(cell: BatchNormLSTM) -> BatchNormLSTM:
    for norm in (cell.input_norm, cell.recurrent_norm, cell.cell_norm):
        nn.init.normal_(norm.mean)
        nn.init.uniform_(norm.variance, 0.5, 2)
        nn.init.normal_(norm.gamma)
    nn.init.normal_(cell.cell_norm.beta)
    nn.init.normal_(cell.bias)
    return cell


def with_statistics(norm: StepBatchNorm, x: Tensor, t: int) -> Tensor:
    """The norm in evaluation."""
    row = min(t, MAX - 1)
    return norm.gamma * (x - norm.mean[row]) / (norm.variance[row] + 1e-5).sqrt() + (
        0 if norm.beta is None else norm.beta
    )


def test_formula_of_evaluation() -> None:
    cell = randomised(BatchNormLSTM(INPUT, HIDDEN, max_steps=MAX))
    times = itertools.cycle(range(STEPS))  # of the sequences, one after the other

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        (h, c), t = state, next(times)
        wx = with_statistics(cell.input_norm, cell.input @ x, t)
        uh = with_statistics(cell.recurrent_norm, cell.recurrent @ h, t)
        i, f, o, g = (wx + uh + cell.bias).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * with_statistics(cell.cell_norm, c, t).tanh()
        return h, (h, c)

    check_twin(cell, twin)
    check_gradients(cell)


def test_formula_of_training() -> None:
    """The statistics are those of the batch at each step; running ones take 5 % of them, beyond the last step too."""
    cell, batch = randomised(BatchNormLSTM(INPUT, HIDDEN, max_steps=MAX)).double(), 6
    norms = (cell.input_norm, cell.recurrent_norm, cell.cell_norm)
    running = [(norm.mean.clone(), norm.variance.clone()) for norm in norms]
    x = torch.randn(STEPS, batch, INPUT, dtype=torch.float64)
    state = torch.randn(1, batch, 2 * HIDDEN, dtype=torch.float64)
    output, last = cell(x, state)

    def normed(which: int, x: Tensor, t: int) -> Tensor:
        mean = x.sum(dim=0) / batch
        squares = (x - mean).pow(2).sum(dim=0)
        row = min(t, MAX - 1)
        for old, new in zip(running[which], (mean, squares / (batch - 1)), strict=True):
            old[row] = 0.95 * old[row] + 0.05 * new.detach()
        y = (x - mean) / (squares / batch + 1e-5).sqrt() * norms[which].gamma
        return y if which < 2 else y + cell.cell_norm.beta

    h, c = state[0].chunk(2, dim=-1)
    for t in range(STEPS):
        sums = normed(0, x[t] @ cell.input.T, t) + normed(1, h @ cell.recurrent.T, t) + cell.bias
        i, f, o, g = sums.chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * normed(2, c, t).tanh()
        torch.testing.assert_close(output[t], h)
    torch.testing.assert_close(last[0], torch.cat((h, c), dim=-1))
    for norm, (mean, variance) in zip(norms, running, strict=True):
        torch.testing.assert_close(norm.mean, mean)
        torch.testing.assert_close(norm.variance, variance)


def test_gradients_of_training() -> None:
    cell = randomised(BatchNormLSTM(INPUT, HIDDEN, max_steps=MAX)).double()
    x = torch.randn(3, 4, INPUT, dtype=torch.float64, requires_grad=True)
    state = torch.randn(1, 4, 2 * HIDDEN, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(cell, (x, state))


def test_evaluation_keeps_the_statistics() -> None:
    cell = randomised(BatchNormLSTM(INPUT, HIDDEN, max_steps=MAX)).eval()
    before = {name: buffer.clone() for name, buffer in cell.named_buffers()}
    x = torch.randn(STEPS, BATCH, INPUT)
    output, _ = cell(x)
    torch.testing.assert_close(cell(x[:, :1])[0], output[:, :1])  # a sequence does not see its batch
    assert all(torch.equal(buffer, before[name]) for name, buffer in cell.named_buffers())


def test_steps_beyond_those_of_training_share_the_statistics_of_its_last() -> None:
    torch.manual_seed(0)
    cell = BatchNormLSTM(INPUT, HIDDEN, max_steps=10)
    for _ in range(20):
        cell(torch.randn(3, 8, INPUT))
    assert int(cell.seen) == 3
    x = torch.randn(6, 2, INPUT)
    output, _ = cell.eval()(x)
    for norm in (cell.input_norm, cell.recurrent_norm, cell.cell_norm):
        norm.mean[3:], norm.variance[3:] = norm.mean[2].clone(), norm.variance[2].clone()
    cell.seen.fill_(10)
    torch.testing.assert_close(cell(x)[0], output)


def test_time_counts_from_each_call() -> None:
    cell = randomised(BatchNormLSTM(INPUT, HIDDEN, max_steps=MAX)).double().eval()
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64)
    first, state = cell(x[:2])
    assert torch.equal(first, cell(x)[0][:2])
    assert not torch.allclose(cell(x[2:], state)[0], cell(x)[0][2:])
    for norm in (cell.input_norm, cell.recurrent_norm, cell.cell_norm):
        for statistics in (norm.mean, norm.variance):
            statistics.copy_(statistics[0].expand_as(statistics))
    check_windows(cell)  # where the statistics of all steps are the same, windows are


def test_the_start_and_the_parameters() -> None:
    cell = BatchNormLSTM(INPUT, HIDDEN, max_steps=MAX)
    for norm in (cell.input_norm, cell.recurrent_norm, cell.cell_norm):
        assert torch.equal(norm.gamma, torch.full_like(norm.gamma, 0.1))
    assert cell.input_norm.beta is None
    assert cell.recurrent_norm.beta is None
    assert torch.equal(cell.bias.detach(), torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(HIDDEN))
    for part in cell.recurrent.detach().chunk(4):
        torch.testing.assert_close(part @ part.T, torch.eye(HIDDEN))
    # beyond those of an LSTM: two gains for each gate, and gain and bias of the cell
    assert sum(p.numel() for p in cell.parameters()) == 4 * HIDDEN * (INPUT + HIDDEN + 1) + 10 * HIDDEN


def test_zoneout_over_it() -> None:
    cell = Zoneout(BatchNormLSTM(INPUT, HIDDEN, max_steps=MAX), (0.0, 0.999999))
    x, state = torch.randn(STEPS, BATCH, INPUT), torch.randn(1, BATCH, 2 * HIDDEN)
    output, last = cell(x, state)
    assert torch.equal(last[..., HIDDEN:], state[..., HIDDEN:])
    assert not torch.equal(output[0], output[-1])


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="max_steps: expected a whole number of at least 1, got 0"):
        BatchNormLSTM(INPUT, HIDDEN, max_steps=0)


def test_copying() -> None:
    check_copying(BatchNormLSTM(4, 24, max_steps=12), steps=120, rate=0.02)


def test_norms_that_change_nothing_leave_an_lstm() -> None:
    """Gains of one and the statistics of a standard normal distribution."""
    cell, plain = BatchNormLSTM(INPUT, HIDDEN, max_steps=MAX).eval(), LSTM(INPUT, HIDDEN)
    for norm in (module for module in cell.modules() if isinstance(module, StepBatchNorm)):
        nn.init.ones_(norm.gamma)
        norm.variance.fill_(1 - norm.eps)
    with torch.no_grad():
        plain.input.copy_(cell.input)
        plain.recurrent.copy_(cell.recurrent)
        plain.bias.copy_(cell.bias)
    x = torch.randn(STEPS, BATCH, INPUT)
    torch.testing.assert_close(cell(x)[0], plain(x)[0])
