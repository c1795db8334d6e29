"""Settings of a run on text, and the paper's values for those that were not given."""

import dataclasses
import functools
import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, get_args

from bipolar._tools.choices import Balance, CellName, Pattern, RivalName, Statistic
from bipolar.lab.data.files import CHARACTERS
from bipolar.lab.data.places import DEFAULT_SPLIT, TEXTS
from bipolar.lab.errors import UsageError
from bipolar.lab.training.config import DEEPEST, RunConfig
from bipolar.lab.training.flags import ActivationFlag, FloatFlag, IntFlag, TextFlag
from bipolar.lab.training.text.rival_options import RivalFlags, RivalOptions
from bipolar.lab.training.update import LARGEST

if TYPE_CHECKING:
    from bipolar._rnn import StackedRNN
    from bipolar.lab.cells.model import RivalRNN
    from bipolar.models import CharRNN

Gradient: TypeAlias = Literal["right", "after skip", "not through time"]

T = TypeVar("T")

#: Peaks of the fast recipe: the epochs from which on they hold, the rate of Adam times the width, and the rate of Muon.
#: Over epochs 36 layers of 256 units trained well at the lower ones, and diverged at the others, which are for some
#: hundred steps.
PEAKS_BY_EPOCHS = ((2, 0.25, 0.0025), (0, 0.5, 0.02))
PEAK_OF_PATH_SGD = 1.0
#: The cells whose units are all ReLUs, as path-SGD wants them.
RECTIFIED = ("relu", "irnn", "skipping")
#: The size of a vocabulary that stands for any, where a width is chosen for a number of parameters.
VOCABULARY = 50
#: The options that other cells share with the stack; the models themselves refuse the dropout rates that they lack.
OF_ALL_CELLS = ("num_layers", "hidden_size", "cell", "dropout", "recurrent_dropout", "block_dropout", "params", "rival")


@dataclass(frozen=True)
class DropoutRates:
    """The dropout between layers, between time steps, and of whole blocks."""

    dropout: float
    recurrent_dropout: float
    block_dropout: float


#: The fast recipe's dropout of the stack: the epochs from which on it has these rates. The highest are the paper's, of
#: its 200 epochs: a third stage of Table 2 with them, of ten epochs, was stopped in its fifth, far behind the second.
#: The others are those of the stages of Table 2.
DROPOUT_BY_EPOCHS = (
    (50, DropoutRates(0.05, 0.025, 0.025)),
    (6, DropoutRates(0.025, 0.025, 0.0)),
    (2, DropoutRates(0.01, 0.01, 0.0)),
)


@dataclass(frozen=True)
class TextRecipe:
    """The settings whose defaults depend on the text, with a value each."""

    lr: float
    validate_every: int
    halve_from: int
    rates: DropoutRates


@dataclass(frozen=True)
class TextModel:
    """The model: options of all cells, and of the paper's stack. Other cells have theirs below."""

    num_layers: int = 36
    """Recurrent layers."""
    hidden_size: int = 256
    """Units of each layer."""
    nonlinearity: ActivationFlag = "belu"
    cell: CellName | RivalName = "stack"
    """The paper's stack, torch's own lstm, gru and rnn (tanh), or a network of Tables 2 and 4, or of today."""
    dropout: FloatFlag = None
    """Dropout between layers. Default: 0, 0.01 for Text8; by the fast recipe 0.01, 0.025, 0.05 from 2, 6, 50 epochs
    on, of which a text of your own that --max-steps limits counts none."""
    recurrent_dropout: FloatFlag = None
    """Dropout between time steps (rnnDrop): stack, lstm, gru, highway. Default: 0, 0.01 for Text8; by the fast recipe
    0.01 and 0.025 likewise."""
    block_dropout: FloatFlag = None
    """Dropout of whole blocks, of the stack alone. Default: 0, 0.01 for Text8; by the fast recipe 0.025 from 50 epochs
    on."""
    skip_every: int | None = 4
    """Layers that a skip connection goes around, or None."""
    skip_scale: float = 0.99
    """The factor of a skip."""
    gamma: float = 0.5
    """The share of a layer's variance that comes from the time step before."""
    pattern: Pattern = "alternate"
    """Which units are flipped."""
    lsuv: Statistic | Literal["none"] = "variance"
    """The statistic that LSUV sets to 1; ``none`` leaves the stack at its random start."""
    balance: Balance = "magnitude"
    """The quantity that W and U share by gamma: their magnitude, as in the paper, or the variance they bring."""
    params: FloatFlag = None
    """Choose the width for about so many parameters, instead of --model.hidden-size. Default: the width as given."""
    recompute: bool = False
    """Save memory: compute the states anew in the backward pass."""
    gradient: Gradient = "right"
    """A mistake in the gradient, to study its effect: see the item ``aliasing``."""
    rival: RivalFlags = field(default_factory=RivalOptions)
    """Options of single cells beside the stack."""

    @property
    def name(self) -> str:
        """Such as 36x256-belu."""
        width = f"{self.hidden_size}" if self.params is None else f"{self.params:g}"
        return f"{self.num_layers}x{width}-{self.nonlinearity if self.cell == 'stack' else self.cell}"

    @property
    def is_rival(self) -> bool:
        """Whether the network is one of the laboratory's own: torch's cells are, where an option asks for more.

        Torch's dropout is between layers alone: one layer has none.
        """
        more = bool(self.rival.given) or bool(self.recurrent_dropout) or bool(self.block_dropout)
        more = more or (self.num_layers == 1 and bool(self.dropout))
        return self.cell in get_args(RivalName) or (self.cell != "stack" and more)

    def options(self, rates: DropoutRates) -> dict[str, Any]:
        """The options of a rival, by name."""
        dropped = {"recurrent_dropout": rates.recurrent_dropout, "block_dropout": rates.block_dropout}
        return self.rival.given | {name: rate for name, rate in dropped.items() if rate}

    def build(self, vocabulary: str, rates: DropoutRates) -> "CharRNN | RivalRNN":
        """The network, at its random start."""
        if self.num_layers > DEEPEST:
            raise ValueError(f"num_layers: expected at most {DEEPEST}, got {self.num_layers}")
        for name, value in vars(TextModel()).items():
            if self.cell != "stack" and name not in OF_ALL_CELLS and getattr(self, name) != value:
                from bipolar.lab.cells.catalogue import no_such_option

                raise no_such_option(self.cell, name, getattr(self, name))
        width = self.width(len(vocabulary))
        return self._rival(vocabulary, width, rates) if self.is_rival else self._of_paper(vocabulary, width, rates)

    def _rival(self, vocabulary: str, width: int, rates: DropoutRates) -> "RivalRNN":
        from bipolar.lab.cells.model import RivalRNN

        return RivalRNN(vocabulary, width, self.num_layers, self.cell, rates.dropout, self.options(rates))

    def _of_paper(self, vocabulary: str, width: int, rates: DropoutRates) -> "CharRNN":
        from bipolar.lab.cells.catalogue import cells_with
        from bipolar.lab.mistakes import mistaken
        from bipolar.lab.training.text.pairing import pair_with_plain
        from bipolar.models import CharRNN

        if self.rival.given:
            name, value = next(iter(self.rival.given.items()))
            raise ValueError(
                f"{name}: the paper's stack has no such option, got {value}; --model.cell takes "
                f"{', '.join(cells_with(name))} for it"
            )
        model = CharRNN(
            vocabulary,
            width,
            self.num_layers,
            nonlinearity=self.nonlinearity,
            cell=cast(CellName, self.cell),
            skip_every=self.skip_every,
            skip_scale=self.skip_scale,
            gamma=self.gamma,
            pattern=self.pattern,
            recompute=self.recompute,
            **dataclasses.asdict(rates),
        )
        pair_with_plain(model)
        if self.gradient != "right":
            model.rnn = mistaken(cast("StackedRNN", model.rnn), self.gradient)
        return model

    def width(self, symbols: int) -> int:
        """The units of a layer, as given or for the number of parameters, which depends on the size of the alphabet."""
        if self.params is None:
            return self.hidden_size
        if not 1 <= self.params < math.inf:
            raise ValueError(f"params: expected a finite number of at least 1, got {self.params}")
        return _width_of(self, symbols, self.params)


@functools.cache
def _width_of(model: TextModel, symbols: int, params: float) -> int:
    """The width for a number of parameters, found once: a rival is built at many widths on the way."""
    if model.is_rival:
        from bipolar.lab.cells.model import RivalRNN

        return RivalRNN.width_for(params, model.num_layers, symbols, model.cell, model.rival.given)
    from bipolar.models import CharRNN

    return CharRNN.width_for(params, model.num_layers, symbols, cast(CellName, model.cell))


@dataclass(frozen=True)
class TextConfig(RunConfig):
    """Train a character-level language model."""

    task = "text"
    data_names, data_kind = TEXTS, "file"
    named = ("data", "seed", "num_layers", "hidden_size", "nonlinearity", "cell", "params")

    data: str = "ptb"
    """``ptb``, ``text8``, ``text8-74M`` (the start of it), ``python-docs``, or the path of a UTF-8 text file."""
    model: TextModel = field(default_factory=TextModel)
    """The model: options of all cells, and of the paper's stack. Options of other cells stand below, with the cells."""
    start: TextFlag = None
    """The directory of a run, or of one that was exported, whose weights this one begins with, in place of LSUV: to
    train on, by another schedule or on another text of the same symbols. Default: none."""
    split: tuple[float, float, float] = DEFAULT_SPLIT
    """How a text file is cut into training, validation and test part."""
    train_share: float = 1.0
    """Train on this share of the training part, from its start: on little text a network overfits."""
    window: int = 50
    """Time steps of backpropagation."""
    lr: FloatFlag = None
    """The learning rate. Default: 2e-4, or 5e-5 for Text8; by the fast recipe its peak, 0.5 divided by the width, 0.02
    for Muon, or 1 for path-SGD. From 2 epochs on, of which a text of your own that --max-steps limits counts none, it
    is 0.25 divided by the width, or 0.0025 for Muon: at higher rates 36 layers of 256 units diverged there."""
    weight_decay: FloatFlag = None
    """The fast recipe's weight decay: Adam and Muon shrink the weights in every step by the learning rate times this,
    SGD adds it to the gradient. Over many epochs it keeps them from growing without end. Default: 0."""
    validate_every: IntFlag = None
    """Epochs between validations. Default: 4, or 1 for Text8 and by the fast recipe."""
    halve_from: IntFlag = None
    """The first validation that may halve the learning rate of the paper's recipe. Default: the fourth, or the second
    for Text8."""
    look_every: IntFlag = None
    """Steps between looks at the validation error within an epoch, which go to the metrics and change nothing.
    Default: none."""
    max_valid_windows: IntFlag = None
    """Validate and test on so many windows at most. Default: all."""

    @property
    def name(self) -> str:
        text = self.data if self.data in TEXTS else Path(self.data).stem
        return f"{text}-{self.model.name}-{self.seed}"

    @property
    def recipe(self) -> TextRecipe:
        """The settings that were given, and the paper's values for the others."""
        is_text8, rates = self.data == "text8", self._rates
        return TextRecipe(
            lr=_either(self.lr, self._peak if self.update.fast else 5e-5 if is_text8 else 2e-4),
            validate_every=_either(self.validate_every, 1 if is_text8 or self.update.fast else 4),
            halve_from=_either(self.halve_from, self._usual_halving),
            rates=DropoutRates(
                dropout=_either(self.model.dropout, rates.dropout),
                recurrent_dropout=_either(self.model.recurrent_dropout, rates.recurrent_dropout),
                block_dropout=_either(self.model.block_dropout, rates.block_dropout),
            ),
        )

    @property
    def _usual_halving(self) -> int:
        return 2 if self.data == "text8" else 4

    @property
    def _rates(self) -> DropoutRates:
        """The dropout of a run that says nothing of it: the longer the training, the more, because it overfits."""
        none = DropoutRates(0.0, 0.0, 0.0)
        if self.model.cell != "stack":
            return none
        if not self.update.fast:
            return DropoutRates(0.01, 0.01, 0.01) if self.data == "text8" else none
        return next((rates for epochs, rates in DROPOUT_BY_EPOCHS if self._epochs >= epochs), none)

    @property
    def _epochs(self) -> float:
        """The epochs of the run; none if --max-steps limits them and the size of the text is not known beforehand."""
        most = self.length.max_epochs
        if self.max_steps is None:
            return most
        characters = self.train_share * CHARACTERS.get(self.data, math.inf)
        return min(most, self.max_steps * self.batch_size * self.window / characters)

    @property
    def _peak(self) -> float:
        """The rate of the fast recipe: a step of Adam moves the input of a unit in proportion to its width."""
        if self.update.optimizer == "path_sgd":
            return PEAK_OF_PATH_SGD
        times_width, of_muon = next(peaks for epochs, *peaks in PEAKS_BY_EPOCHS if self._epochs >= epochs)
        if self.update.optimizer == "muon":
            return of_muon
        return times_width / max(1, self.model.width(VOCABULARY))  # a width of 0 has an error of its own

    @property
    def _apart(self) -> str:
        if self.start is None:
            return super()._apart
        place = hashlib.sha256(str(Path(self.start).resolve()).encode()).hexdigest()[:4]
        return f"{super()._apart}-{place}"  # there may be others of its name

    def build(self, vocabulary: str) -> "CharRNN | RivalRNN":
        """The network, at its random start."""
        return self.model.build(vocabulary, self.recipe.rates)

    def check(self) -> None:
        super().check()
        for name in ("window", "validate_every", "halve_from", "look_every", "max_valid_windows"):
            self.at_least(name, 1)
        self.positive("lr")
        if self.update.fast and self.halve_from not in (None, self._usual_halving):  # a stored run has the usual one
            raise UsageError(
                f"--halve-from {self.halve_from}: a part of the paper's recipe; leave it out, or --recipe fast"
            )
        self._check_weight_decay()
        if self.update.adam_lr is not None and self.update.optimizer is None:
            raise UsageError(
                f"--adam-lr {self.update.adam_lr}: the rate beside Muon's; add --optimizer muon, or leave it out"
            )
        if self.update.optimizer == "path_sgd" and self.model.cell not in RECTIFIED:
            raise UsageError(
                f"--optimizer path_sgd: the cell {self.model.cell!r} does not consist of ReLUs; --model.cell takes "
                f"{', '.join(RECTIFIED)} for it"
            )
        if self.model.rival.norm_stabiliser and self.window < 2:
            raise UsageError(
                f"--window {self.window}: the norm stabiliser compares a step with the one before; take 2 steps or more"
            )
        if self.model.rival.batch_norm:
            self._check_batch_norm()
        if not 0 < self.train_share <= 1:
            raise UsageError(f"--train-share {self.train_share}: expected a share above 0, and 1 at most")
        self.check_model(lambda: self.build("abc"))

    def _check_batch_norm(self) -> None:
        """Statistics need two values or more: of the LSTM in each step, of IndRNN over all steps of a window."""
        processes = max(1, self.machine.processes)
        sequences, of_window = self.batch_size // processes, self.model.cell == "indrnn"
        if sequences * (self.window if of_window else 1) < 2:
            raise UsageError(
                f"--batch-size {self.batch_size}: batch norm compares the sequences of a process, and each has "
                f"{sequences}; take {2 * processes} or more" + (", or a longer --window" if of_window else "")
            )

    def _check_weight_decay(self) -> None:
        if self.weight_decay is None:
            return
        given = f"--weight-decay {self.weight_decay}"
        if not self.update.fast:
            raise UsageError(f"{given}: the paper's recipe has no such setting; add --recipe fast, or leave it out")
        if self.update.optimizer == "path_sgd":
            raise UsageError(f"{given}: path-SGD has no such setting; leave it out, or take --optimizer adam or muon")
        if not 0 <= self.weight_decay < LARGEST:
            raise UsageError(f"{given}: expected 0 or more, below {LARGEST:g}")

    def to_json(self) -> dict[str, Any]:
        plain = self if self.start is None else dataclasses.replace(self, start=Path(self.start).resolve().name)
        values, recipe = super(TextConfig, plain).to_json(), dataclasses.asdict(self.recipe)
        values["model"] |= recipe.pop("rates")
        values["model"]["rival"] = self.model.rival.given
        if not values["model"]["rival"]:  # runs of earlier versions, which are found by their settings, had none
            del values["model"]["rival"]
        for name in ("start", "weight_decay"):
            if values[name] is None:  # likewise
                del values[name]
        return values | recipe


def _either(given: T | None, default: T) -> T:
    return default if given is None else given
