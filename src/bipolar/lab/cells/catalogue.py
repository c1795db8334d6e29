"""The rivals by name: the class of each, the options it has, and the way to more layers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from torch import nn

from bipolar.lab.cells.arguments import check_counts, check_rates
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
    for name, value in options.items():
        if value:
            raise ValueError(f"{name}: expected nothing beside batch_norm, got {value}")
    return BatchNormLSTM(input_size, hidden_size, max_steps=BATCH_NORM_STEPS)


def hyper_lstm(input_size: int, hidden_size: int, **options: Any) -> Cell:
    """The HyperLSTM with as many hyper units to a unit as published, 128 to 1,000, so that it fits any budget."""
    return HyperLSTM(input_size, hidden_size, hyper_size=max(1, round(0.128 * hidden_size)), **options)


def hm_lstm(
    input_size: int, hidden_size: int, *, level_share: float = 1.0, constant_slope: bool = False, **options: Any
) -> Cell:
    """The HM-LSTM, with levels whose width is a share of that of its output embedding, so that it fits any budget."""
    if not 0 < level_share < math.inf:
        raise ValueError(f"level_share: expected a finite number above 0, got {level_share}")
    width = max(1, round(level_share * hidden_size))
    return HMLSTM(input_size, hidden_size, level_size=width, annealed=not constant_slope, **options)


def dots(input_size: int, hidden_size: int) -> Cell:
    """The DOT(S)-RNN with as many units in its state to one of its output as published, 400 to 600."""
    return DOTS(input_size, hidden_size, state_size=max(1, round(2 / 3 * hidden_size)))


@dataclass(frozen=True)
class Rival:
    """A network of the tables."""

    make: Callable[..., Cell]
    #: its options, with the names that its class has for them
    options: Mapping[str, str] = field(default_factory=dict)
    #: the options of what goes around each of its layers, zoneout and stochastic depth
    around: tuple[str, ...] = ()
    #: the argument that takes the number of layers, of a network that has levels of its own
    levels: str | None = None
    #: whether there are hidden units whose norm can be stabilised
    recurrent: bool = True

    @property
    def known(self) -> tuple[str, ...]:
        """The names of all its options."""
        between = ["dropout"] if self.levels is None else []  # a network with levels has it, or not, by itself
        return (*between, *self.options, *self.around, *(["norm_stabiliser"] if self.recurrent else []))

    def build(
        self, cell: str, input_size: int, hidden_size: int, num_layers: int, dropout: float, options: dict[str, Any]
    ) -> nn.Module:
        """The layers; ``options`` are all those of the model. Errors name the options as the model has them."""
        if dropout:
            options = options | {"dropout": dropout}
        for name, value in options.items():
            if name not in self.known:
                raise no_such_option(cell, name, value)
        try:
            return self._made(input_size, hidden_size, num_layers, options)
        except ValueError as error:
            raise ValueError(f"{error}; the cell is {cell!r}") from None

    def _made(self, input_size: int, hidden_size: int, num_layers: int, options: dict[str, Any]) -> nn.Module:
        check_counts(hidden_size=hidden_size)
        check_rates(**{name: value for name, value in options.items() if name in RATES})
        stabiliser = float(options.get("norm_stabiliser", 0.0))
        if not 0 <= stabiliser < math.inf:
            raise ValueError(f"norm_stabiliser: expected a number that is not negative, got {stabiliser}")
        inner = {self.options[name]: value for name, value in options.items() if name in self.options}
        made: nn.Module
        try:
            if self.levels is None:
                make = partial(self._layer, options, inner)
                made = Layers(make, input_size, hidden_size, num_layers, dropout=options.get("dropout", 0.0))
            else:
                made = self.make(input_size, hidden_size, **{self.levels: num_layers}, **inner)
        except ValueError as error:
            names = {argument: name for name, argument in self.options.items()} | {self.levels: "num_layers"}
            name, colon, rest = str(error).partition(":")
            raise ValueError(f"{names.get(name, name)}{colon}{rest}") from None
        for each in made.layers if isinstance(made, Layers) else [made]:
            cast(Cell, each).stabiliser = stabiliser
        return made

    def _layer(self, options: dict[str, Any], inner: dict[str, Any], input_size: int, hidden_size: int) -> Cell:
        layer = self.make(input_size, hidden_size, **inner)
        rates = [options.get(name, 0.0) for name in ("zoneout", "zoneout_cell")][: len(layer.sizes)]
        if any(rates):
            layer = Zoneout(layer, rates)
        depth = options.get("stochastic_depth", 0.0)
        return StochasticDepth(layer, depth) if depth else layer


AROUND = ("zoneout", "stochastic_depth")
#: The options that are rates of noise.
RATES = ("dropout", *AROUND, "zoneout_cell", "candidate_dropout", "input_dropout", "recurrent_dropout")
OF_RECURRENCE = {"candidate_dropout": "recurrent_dropout", "recurrent_dropout": "rnn_drop"}
OF_LSTM = ("layer_norm", "weight_norm", "batch_norm")

#: All rivals; those of torch's names are ours where an option asks for more than torch has.
RIVALS = {
    "rnn": Rival(Vanilla, around=AROUND),
    "relu": Rival(partial(Vanilla, nonlinearity="relu"), around=AROUND),
    "irnn": Rival(partial(Vanilla, nonlinearity="relu", identity=True), around=AROUND),
    "gru": Rival(GRU, OF_RECURRENCE, around=AROUND),
    "lstm": Rival(
        lstm,
        {name: name for name in OF_LSTM} | OF_RECURRENCE,
        around=(*AROUND, "zoneout_cell"),
    ),
    "mi_rnn": Rival(MIRNN),
    "mi_lstm": Rival(MILSTM),
    "mlstm": Rival(MLSTM),
    "delta_rnn": Rival(DeltaRNN, {"candidate_dropout": "dropout"}),
    "dots": Rival(dots),
    "skipping": Rival(SkippingRNN, {"skip": "skip"}),
    "highway": Rival(
        Highway, {"depth": "depth", "input_dropout": "input_dropout", "recurrent_dropout": "hidden_dropout"}
    ),
    "hyper_lstm": Rival(
        hyper_lstm,
        {
            "layer_norm": "layer_norm",
            "candidate_dropout": "recurrent_dropout",
            "embedding_size": "embedding_size",
        },
    ),
    "hm_lstm": Rival(
        hm_lstm, {name: name for name in ("layer_norm", "level_share", "constant_slope")}, levels="levels"
    ),
    "indrnn": Rival(IndRNN, {"batch_norm": "batch_norm"}),
    "mingru": Rival(MinGRU),
    "transformer": Rival(
        Transformer, {name: name for name in ("heads", "context", "dropout")}, levels="layers", recurrent=False
    ),
}


def no_such_option(cell: str, name: str, value: object) -> ValueError:
    """The error about an option that a cell does not have."""
    known = ", ".join(RIVALS[cell].known)
    return ValueError(f"{name}: the cell {cell!r} has no such option, got {value}; it has {known}")


def cells_with(option: str) -> list[str]:
    """The cells that have an option."""
    return [cell for cell, rival in RIVALS.items() if option in rival.known]
