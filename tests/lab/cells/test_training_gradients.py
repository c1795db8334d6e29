"""Gradients in training, where noise and the statistics of a batch are part of the function."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from bipolar.lab.cells.delta_rnn import DeltaRNN
from bipolar.lab.cells.gru import GRU
from bipolar.lab.cells.highway import Highway
from bipolar.lab.cells.hyper_lstm import HyperLSTM
from bipolar.lab.cells.indrnn import IndRNN
from bipolar.lab.cells.lstm import LSTM
from bipolar.lab.cells.protocol import Cell
from bipolar.lab.cells.recurrent_batch_norm import BatchNormLSTM
from bipolar.lab.cells.transformer import Transformer
from bipolar.lab.cells.vanilla import Vanilla
from bipolar.lab.cells.zoneout import StochasticDepth, Zoneout
from tests.lab.cells.twins import check_gradients

MAKERS: dict[str, Callable[[], Cell]] = {
    "zoneout, tanh": lambda: Zoneout(Vanilla(2, 3), 0.5),
    "zoneout, GRU": lambda: Zoneout(GRU(2, 2), 0.5),
    "zoneout, LSTM": lambda: Zoneout(LSTM(2, 2), (0.3, 0.5)),
    "stochastic depth, tanh": lambda: StochasticDepth(Vanilla(2, 3), 0.5),
    "stochastic depth, GRU": lambda: StochasticDepth(GRU(2, 2), 0.5),
    "stochastic depth, LSTM": lambda: StochasticDepth(LSTM(2, 2), 0.5),
    "both around dropout": lambda: StochasticDepth(Zoneout(LSTM(2, 2, recurrent_dropout=0.3, rnn_drop=0.3), 0.3), 0.3),
    **{
        f"{name}, {cell.__name__}": partial(cell, 2, 2, **{name: 0.5})
        for name in ("recurrent_dropout", "rnn_drop")
        for cell in (LSTM, GRU)
    },
    "rnnDrop, layer norm": lambda: LSTM(2, 3, rnn_drop=0.3, layer_norm=True),
    "rnnDrop, weight norm": lambda: LSTM(2, 2, rnn_drop=0.3, weight_norm=True),
    "highway": lambda: Highway(
        2, 2, depth=2, transform_bias=-1.0, init_scale=0.7, input_dropout=0.3, hidden_dropout=0.3
    ),
    "HyperLSTM": lambda: HyperLSTM(2, 2, hyper_size=2, embedding_size=1, recurrent_dropout=0.4),
    "Delta-RNN": lambda: DeltaRNN(2, 2, outer="tanh", dropout=0.4),
    "transformer": lambda: Transformer(2, 2, layers=1, heads=1, context=2, dropout=0.3),
    "IndRNN, batch norm": lambda: IndRNN(2, 3, batch_norm=True),
    "LSTM, batch norm": lambda: BatchNormLSTM(2, 2, max_steps=3, gamma=0.5),
}


@pytest.mark.parametrize("name", MAKERS)
def test_gradients(name: str) -> None:
    cell = MAKERS[name]()
    check_gradients(cell, training=True)  # no unit is at its kink
    x = torch.randn(5, 2, 2, dtype=torch.float64)
    outputs = [cell.train(mode)(x, generator=torch.Generator().manual_seed(1))[0] for mode in (True, False)]
    assert not torch.allclose(*outputs)  # the noise is there
