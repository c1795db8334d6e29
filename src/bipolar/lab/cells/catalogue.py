"""The rivals by name: the class of each, the options it has, and the way to more layers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from bipolar.lab.cells.delta_rnn import DeltaRNN
from bipolar.lab.cells.dots import DOTS
from bipolar.lab.cells.gru import GRU
from bipolar.lab.cells.highway import Highway
from bipolar.lab.cells.hm_lstm import HMLSTM
from bipolar.lab.cells.hyper_lstm import HyperLSTM
from bipolar.lab.cells.indrnn import IndRNN
from bipolar.lab.cells.layers import Layers
from bipolar.lab.cells.lstm import LSTM
from bipolar.lab.cells.mingru import MinGRU
from bipolar.lab.cells.mlstm import MLSTM
from bipolar.lab.cells.multiplicative_integration import MILSTM, MIRNN
from bipolar.lab.cells.protocol import Cell
from bipolar.lab.cells.recurrent_batch_norm import BatchNormLSTM
from bipolar.lab.cells.skipping import SkippingRNN
from bipolar.lab.cells.transformer import Transformer
from bipolar.lab.cells.vanilla import Vanilla
from bipolar.lab.cells.zoneout import StochasticDepth, Zoneout

#: Statistics of recurrent batch norm: steps beyond these share the last.
BATCH_NORM_STEPS = 100


def lstm(input_size: int, hidden_size: int, *, batch_norm: bool = False, **options: Any) -> Cell:
    """The LSTM, or the one with recurrent batch norm, which takes no other option."""
    if not batch_norm:
        return LSTM(input_size, hidden_size, **options)
    if options:
        raise ValueError(f"{', '.join(options)}: expected nothing beside batch_norm, got {options}")
    return BatchNormLSTM(input_size, hidden_size, max_steps=BATCH_NORM_STEPS)


def hyper_lstm(input_size: int, hidden_size: int, **options: Any) -> Cell:
    """The HyperLSTM with as many hyper units to a unit as published, 128 to 1,000, so that it fits any budget."""
    return HyperLSTM(input_size, hidden_size, hyper_size=max(1, round(0.128 * hidden_size)), **options)


@dataclass(frozen=True)
class Rival:
    """A network of the tables."""

    make: Callable[..., Cell]
    #: its options, with the names that its class has for them
    options: Mapping[str, str] = field(default_factory=dict)
    #: whether zoneout and stochastic depth go around it
    held: bool = False
    #: the argument that takes the number of layers, of a network that has levels of its own
    levels: str | None = None

    @property
    def known(self) -> tuple[str, ...]:
        """The names of all its options."""
        around = ("zoneout", "stochastic_depth") if self.held else ()
        return (*self.options, *around, "norm_stabiliser")

    def build(self, cell: str, hidden_size: int, num_layers: int, dropout: float, options: dict[str, Any]) -> nn.Module:
        """The layers; ``options`` are those of the model but for the terms of its loss."""
        for name, value in options.items():
            if name not in self.known:
                raise ValueError(
                    f"{name}: the cell {cell!r} has no such option, got {value}; it has {', '.join(self.known)}"
                )
        if hidden_size < 1:
            raise ValueError(f"hidden_size: expected at least 1, got {hidden_size}")
        inner = {self.options[name]: value for name, value in options.items() if name in self.options}
        if self.levels is not None:
            return self.make(hidden_size, hidden_size, **{self.levels: num_layers}, **inner)
        return Layers(partial(self._layer, options, inner), hidden_size, hidden_size, num_layers, dropout=dropout)

    def _layer(self, options: dict[str, Any], inner: dict[str, Any], input_size: int, hidden_size: int) -> Cell:
        inner = dict(inner)
        zoneout_cell = inner.pop("zoneout_cell", 0.0)
        layer = self.make(input_size, hidden_size, **inner)
        zoneout, depth = options.get("zoneout", 0.0), options.get("stochastic_depth", 0.0)
        if zoneout or zoneout_cell:
            layer = Zoneout(layer, [zoneout, zoneout_cell][: len(layer.sizes)])
        return StochasticDepth(layer, depth) if depth else layer


OF_LSTM = ("layer_norm", "weight_norm", "batch_norm", "zoneout_cell")

#: All rivals; those of torch's names are ours where an option asks for more than torch has.
RIVALS = {
    "rnn": Rival(Vanilla, held=True),
    "relu": Rival(partial(Vanilla, nonlinearity="relu"), held=True),
    "irnn": Rival(partial(Vanilla, nonlinearity="relu", identity=True), held=True),
    "gru": Rival(GRU, held=True),
    "lstm": Rival(
        lstm,
        {name: name for name in OF_LSTM} | {"candidate_dropout": "recurrent_dropout", "recurrent_dropout": "rnn_drop"},
        held=True,
    ),
    "mi_rnn": Rival(MIRNN),
    "mi_lstm": Rival(MILSTM),
    "mlstm": Rival(MLSTM),
    "delta_rnn": Rival(DeltaRNN),
    "dots": Rival(DOTS),
    "skipping": Rival(SkippingRNN, {"skip": "skip"}),
    "highway": Rival(Highway, {"depth": "depth", "recurrent_dropout": "hidden_dropout"}),
    "hyper_lstm": Rival(hyper_lstm, {"layer_norm": "layer_norm", "candidate_dropout": "recurrent_dropout"}),
    "hm_lstm": Rival(HMLSTM, {"layer_norm": "layer_norm"}, levels="levels"),
    "indrnn": Rival(IndRNN, {"batch_norm": "batch_norm"}),
    "mingru": Rival(MinGRU),
    "transformer": Rival(Transformer, {"heads": "heads", "context": "context"}, levels="layers"),
}
