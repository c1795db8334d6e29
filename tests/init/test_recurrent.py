"""LSUV of torch's recurrent layers."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence

import bipolar


@pytest.mark.parametrize("mode", ["RNN", "RNN relu", "LSTM", "GRU"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"batch_first": True, "bias": False}])
def test_recurrent_layers(mode: str, options: dict[str, Any]) -> None:
    if mode == "RNN relu":
        options = options | {"nonlinearity": "relu"}
    rnn: Any = getattr(nn, mode.split()[0])(12, 20, num_layers=3, **options)
    x = 3 * torch.randn(30, 16, 12)
    report = bipolar.lsuv_(rnn, x)
    suffixes = ["", "_reverse"][: 1 + rnn.bidirectional]
    names = [f"{kind}_l{i}{s}" for i in range(3) for s in suffixes for kind in ("weight_ih", "weight_hh")]
    assert [row.name for row in report] == [f"{type(rnn).__name__}.{name}" for name in names]
    vertical = x.reshape(-1, 12) @ rnn.weight_ih_l0.T
    horizontal = torch.randn(4000, 20) @ rnn.weight_hh_l0.T
    bias = rnn.bias_ih_l0 + rnn.bias_hh_l0 if rnn.bias else torch.zeros(())
    gates = vertical[:400] + horizontal[:400] + bias
    assert vertical.var().item() == pytest.approx(horizontal.var().item(), rel=0.1)
    measured_at = torch.relu(gates) if mode == "RNN relu" else gates
    assert measured_at.var().item() == pytest.approx(1.0, abs=0.1)
    rnn(x)


def test_recurrent_cells_projections_and_packed_sequences() -> None:
    cell = nn.LSTMCell(6, 5)
    assert len(bipolar.lsuv_(cell, torch.randn(64, 6))) == 2
    projected = nn.LSTM(6, 8, num_layers=2, proj_size=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: projections are not supported with oneDNN
        assert len(bipolar.lsuv_(projected, torch.randn(9, 4, 6))) == 4
    packed = pack_padded_sequence(torch.randn(9, 4, 6), torch.tensor([9, 7, 4, 2]))
    assert len(bipolar.lsuv_(nn.GRU(6, 8, num_layers=2), packed)) == 4


def test_recurrent_layers_that_are_subclassed_parametrised_or_tied() -> None:
    class Mine(nn.LSTM):
        def __init__(self, width: int) -> None:
            super().__init__(width, width, num_layers=2)

    x = torch.randn(5, 4, 8)
    assert len(bipolar.lsuv_(Mine(8), x)) == 4
    assert len(bipolar.lsuv_(nn.GRU(8, 8), {"hx": torch.zeros(1, 4, 8), "input": x})) == 2

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.RNN(8, 8), nn.RNN(8, 8), nn.RNN(8, 8)
            self.b.weight_ih_l0, self.b.weight_hh_l0 = self.a.weight_ih_l0, self.a.weight_hh_l0
            parametrizations.weight_norm(self.c, "weight_hh_l0")

        def forward(self, x: Tensor) -> Tensor:
            return self.c(self.b(self.a(x)[0])[0])[0]

    report = bipolar.lsuv_(Pair(), x)
    assert report["b"].note == "tied to 'a'"
    assert report["c"].note == "its weights are parametrised"


def test_recurrent_layers_take_random_numbers_from_the_generator_only() -> None:
    rnn, rng = nn.LSTM(4, 5, num_layers=2), torch.get_rng_state()
    bipolar.lsuv_(rnn, torch.zeros(3, 2, 4) + torch.arange(4.0), generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), rng)
