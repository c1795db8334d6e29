"""HyperLSTM against its formulas, its published sizes and its start."""

import pytest
import torch
from torch import Tensor, nn

from bipolar.lab.cells.hyper_lstm import HyperLSTM
from bipolar.lab.cells.protocol import Dice, State
from tests.lab.cells.noise import check_rate
from tests.lab.cells.twins import BATCH, HIDDEN, INPUT, STEPS, check_copying, check_gradients, check_twin, check_windows

HYPER, EMBEDDING = 3, 2


def made(layer_norm: bool, recurrent_dropout: float = 0.0) -> HyperLSTM:
    """With all parameters different, those that start as constants too."""
    cell = HyperLSTM(
        INPUT,
        HIDDEN,
        hyper_size=HYPER,
        embedding_size=EMBEDDING,
        layer_norm=layer_norm,
        recurrent_dropout=recurrent_dropout,
    )
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return cell


def normed(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.square().mean() + 1e-3).sqrt() * gain.flatten() + bias.flatten()


def formula(cell: HyperLSTM, x: Tensor, state: State, mask: Tensor | float = 1.0) -> State:
    h, c, hyper_h, hyper_c = state
    cut = 4 * HIDDEN
    gates = []
    for k in range(4):
        rows = slice(k * HYPER, (k + 1) * HYPER)
        a = cell.input[cut:][rows] @ x + cell.recurrent[cut:][rows] @ h + cell.hyper_recurrent[rows] @ hyper_h
        if cell.hyper_norms is None:
            a = a + cell.hyper_bias[rows]
        else:
            a = normed(a, cell.hyper_norms.gain[k], cell.hyper_norms.bias[k])
        gates.append(a)
    i, g, f, o = gates
    hyper_c = (f + 1).sigmoid() * hyper_c + i.sigmoid() * g.tanh()
    seen = hyper_c
    if cell.hyper_cell_norm is not None:
        seen = normed(hyper_c, cell.hyper_cell_norm.gain, cell.hyper_cell_norm.bias)
    hyper_h = o.sigmoid() * seen.tanh()
    gates = []
    for k in range(4):

        def signal(role: int, k: int = k) -> Tensor:
            at = (4 * role + k) * EMBEDDING
            z = cell.embed[at : at + EMBEDDING] @ hyper_h
            if role < 2:
                z = z + cell.embed_bias[at : at + EMBEDDING]
            return z @ cell.decode[4 * role + k]

        rows = slice(k * HIDDEN, (k + 1) * HIDDEN)
        a = signal(0) * (cell.recurrent[rows] @ h) + signal(1) * (cell.input[rows] @ x) + signal(2) + cell.bias[k, 0]
        gates.append(a if cell.norms is None else normed(a, cell.norms.gain[k], cell.norms.bias[k]))
    i, g, f, o = gates
    c = (f + 1).sigmoid() * c + i.sigmoid() * mask * g.tanh()
    seen = c if cell.cell_norm is None else normed(c, cell.cell_norm.gain, cell.cell_norm.bias)
    return o.sigmoid() * seen.tanh(), c, hyper_h, hyper_c


@pytest.mark.parametrize("layer_norm", [False, True])
def test_formula(layer_norm: bool) -> None:
    cell = made(layer_norm)

    def twin(x: Tensor, state: State) -> tuple[Tensor, State]:
        state = formula(cell, x, state)
        return state[0], state

    check_twin(cell, twin)
    check_windows(cell)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_gradients(layer_norm: bool) -> None:
    cell = HyperLSTM(2, 2, hyper_size=2, embedding_size=1, layer_norm=layer_norm)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    check_gradients(cell)


def test_dropout() -> None:
    """Each step has its own mask, on what enters the memory; in evaluation there is none."""
    cell = made(False, 0.3).double()
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64)
    output, _ = cell(x, generator=torch.Generator().manual_seed(3))
    masks = (torch.rand(STEPS, BATCH, HIDDEN, generator=torch.Generator().manual_seed(3)) >= 0.3) / 0.7
    for b in range(BATCH):
        state: State = tuple(x.new_zeros(size) for size in cell.sizes)
        for t in range(STEPS):
            state = formula(cell, x[t, b], state, masks[t, b])
            torch.testing.assert_close(output[t, b], state[0])
    plain = made(False).double()
    plain.load_state_dict(cell.state_dict())
    assert torch.equal(cell.eval()(x)[0], plain(x)[0])


def test_masks() -> None:
    cell = HyperLSTM(INPUT, 50, recurrent_dropout=0.1)
    drawn = cell.draw(40, 10, Dice(torch.Generator().manual_seed(0), torch.empty(0)))
    kept = (drawn.each[0] * 0.9).round()
    check_rate(kept, 0.1)
    check_rate((kept[1:] == kept[:-1]).float(), 2 * 0.1 * 0.9)  # neighbours in time are independent


def test_the_start() -> None:
    """At its start it is an LSTM with a tenth of each weight, and a forget bias of one."""
    cell = HyperLSTM(INPUT, HIDDEN, hyper_size=HYPER, embedding_size=EMBEDDING)
    usual = nn.LSTM(INPUT, HIDDEN)
    order = [0, 2, 1, 3]  # torch's gates are i, f, g, o
    with torch.no_grad():
        for theirs, ours in ((usual.weight_ih_l0, cell.input), (usual.weight_hh_l0, cell.recurrent)):
            gates = ours[: 4 * HIDDEN].chunk(4)
            theirs.copy_(0.1 * torch.cat([gates[k] for k in order]))
        usual.bias_ih_l0.copy_(torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(HIDDEN))
        usual.bias_hh_l0.zero_()
    x = torch.randn(STEPS, BATCH, INPUT)
    torch.testing.assert_close(cell(x)[0], usual(x)[0])
    for block in cell.recurrent.detach()[: 4 * HIDDEN].chunk(4):
        torch.testing.assert_close(block @ block.T, torch.eye(HIDDEN))


@pytest.mark.parametrize(("layer_norm", "millions"), [(False, 4.91), (True, 4.92)])
def test_the_published_sizes(layer_norm: bool, millions: float) -> None:
    """1,000 units on 50 characters, with the softmax."""
    with torch.device("meta"):
        cell = HyperLSTM(50, 1000, layer_norm=layer_norm)
    count = sum(p.numel() for p in cell.parameters())
    lstm = 4 * 1000 * (50 + 1000 + 1) + 4 * 128 * (50 + 1000 + 128 + 1)
    norms = (5 * 2 * 1000 + 5 * 2 * 128 - 4 * 128) * layer_norm
    assert count == lstm + 12 * 4 * 128 + 8 * 4 + 12 * 4 * 1000 + norms
    assert round((count + 50 * 1001) / 1e6, 2) == millions


def test_the_size_with_large_embeddings() -> None:
    """On 49 characters, with the softmax; the paper has 5.06 million.

    From embeddings of 4 to those of 16 it grows by 0.14 million, which is what D alone adds; A adds 0.02 here.
    """
    with torch.device("meta"):
        cells = [HyperLSTM(49, 1000, embedding_size=size, layer_norm=True) for size in (4, 16)]
    small, large = (sum(p.numel() for p in cell.parameters()) + 49 * 1001 for cell in cells)
    assert large == 5_079_657
    assert large - small == 12 * 12 * 1000 + 12 * 12 * 128 + 8 * 12


def test_arguments() -> None:
    with pytest.raises(ValueError, match="embedding_size: expected a whole number of at least 1, got 0"):
        HyperLSTM(INPUT, HIDDEN, embedding_size=0)
    with pytest.raises(ValueError, match=r"recurrent_dropout: expected a rate .*, got 1\.5"):
        HyperLSTM(INPUT, HIDDEN, recurrent_dropout=1.5)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_copying(layer_norm: bool) -> None:
    check_copying(HyperLSTM(4, 16, hyper_size=8, embedding_size=2, layer_norm=layer_norm), steps=80, rate=0.03)


def test_layer_norm_at_its_affine_start() -> None:
    cell = HyperLSTM(INPUT, HIDDEN, hyper_size=HYPER, embedding_size=EMBEDDING, layer_norm=True)
    for norms in (cell.norms, cell.cell_norm, cell.hyper_norms, cell.hyper_cell_norm):
        assert norms is not None
        assert torch.equal(norms.gain, torch.ones_like(norms.gain))
        assert not norms.bias.any()
