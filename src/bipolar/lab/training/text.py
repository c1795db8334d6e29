"""Training a character-level language model, by the paper's recipe."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from bipolar._activations.moments import Statistic
from bipolar._activations.patterns import Pattern
from bipolar._init.stacked import Balance
from bipolar._rnn import StackedRNN
from bipolar.lab.data import Corpus, DataError, Streams, data_directory, load_text
from bipolar.lab.data.text import DEFAULT_SPLIT, NAMES, SPLITS
from bipolar.lab.mistakes import Gradient, mistaken
from bipolar.lab.training.checkpoints import best_of
from bipolar.lab.training.loop import Machine, Task, mean_over_processes, of_all_processes, of_process
from bipolar.lab.training.runs import RunConfig, load_config, perform, prepared, stored
from bipolar.models._char_rnn import CellName, CharRNN

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class TextModel:
    """The model. Text8's dropout rates are 0.01 each unless given, as in the paper."""

    num_layers: int = 36
    """Recurrent layers."""
    hidden_size: int = 256
    """Units of each layer."""
    nonlinearity: str = "belu"
    """The activation function, by name."""
    cell: CellName = "stack"
    """The paper's stack, or torch's own cells for comparison."""
    dropout: float | None = None
    """Dropout between layers. Default: 0, or 0.01 for Text8."""
    recurrent_dropout: float | None = None
    """Dropout between time steps (rnnDrop). Default: 0, or 0.01 for Text8."""
    block_dropout: float | None = None
    """Dropout of whole blocks. Default: 0, or 0.01 for Text8."""
    skip_every: int | None = 4
    """Layers that a skip connection goes around, or None."""
    skip_scale: float = 0.99
    """The factor of a skip."""
    gamma: float = 0.5
    """The share of a layer's variance that comes from the time step before."""
    pattern: Pattern = "alternate"
    """Which units are flipped."""
    lsuv: Statistic | Literal["none"] = "variance"
    """What LSUV sets to 1; ``none`` leaves the stack at its random start."""
    balance: Balance = "magnitude"
    """What the two weights of a layer share by gamma: their magnitude, as in the paper, or the variance they bring."""
    params: float | None = None
    """Choose the width for about so many parameters, instead of --model.hidden-size."""
    recompute: bool = False
    """Save memory: compute the states anew in the backward pass."""
    gradient: Gradient = "right"
    """A mistake in the gradient, to study what it does: see the item ``aliasing``."""

    @property
    def name(self) -> str:
        """Such as 36x256-belu."""
        width = f"{self.hidden_size}" if self.params is None else f"{self.params:g}"
        return f"{self.num_layers}x{width}-{self.nonlinearity if self.cell == 'stack' else self.cell}"

    def build(self, vocabulary: str) -> CharRNN:
        options = dataclasses.asdict(self)
        del options["lsuv"], options["balance"]
        params = options.pop("params")
        if params is not None:
            if params < 1:
                raise ValueError(f"params: expected at least 1, got {params}")
            options["hidden_size"] = CharRNN.width_for(params, self.num_layers, len(vocabulary), self.cell)
        if self.cell != "stack":
            for name in (
                "nonlinearity",
                "skip_every",
                "skip_scale",
                "gamma",
                "pattern",
                "lsuv",
                "balance",
                "recompute",
                "gradient",
            ):
                if getattr(self, name) != getattr(TextModel(), name):
                    raise ValueError(f"{name}: torch's own {self.cell!r} has no such option")
        rates = ("dropout", "recurrent_dropout", "block_dropout")
        options |= {name: options[name] or 0.0 for name in rates}
        gradient = options.pop("gradient")
        model = CharRNN(vocabulary, options.pop("hidden_size"), options.pop("num_layers"), **options)
        if gradient != "right":
            model.rnn = mistaken(cast(StackedRNN, model.rnn), gradient)
        return model


@dataclass(frozen=True)
class TextConfig(RunConfig):
    """Train a character-level language model."""

    task = "text"

    data: str = "ptb"
    """``ptb``, ``text8``, ``text8-74M`` (the start of it), ``python-docs``, or the path of a UTF-8 text file."""
    model: TextModel = field(default_factory=TextModel)
    """The model."""
    split: tuple[float, float, float] = DEFAULT_SPLIT
    """How a text file is cut into training, validation and test part."""
    window: int = 50
    """Time steps of backpropagation."""
    lr: float | None = None
    """The learning rate. Default: 2e-4, or 5e-5 for Text8."""
    validate_every: int | None = None
    """Epochs between validations. Default: 4, or 1 for Text8."""
    halve_from: int | None = None
    """The first validation that may halve the learning rate. Default: the fourth, or the second for Text8."""
    max_valid_windows: int | None = None
    """Validate and test on so many windows at most."""

    def filled(self) -> "TextConfig":
        """With the paper's value wherever nothing was given."""
        is_text8 = self.data == "text8"
        rates = ("dropout", "recurrent_dropout", "block_dropout")
        default = 0.01 if is_text8 and self.model.cell == "stack" else 0.0
        missing: dict[str, Any] = {name: default for name in rates if getattr(self.model, name) is None}
        model = dataclasses.replace(self.model, **missing)
        name = Path(self.data).stem if self.data not in NAMES else self.data
        return dataclasses.replace(
            self,
            model=model,
            lr=(5e-5 if is_text8 else 2e-4) if self.lr is None else self.lr,
            validate_every=(1 if is_text8 else 4) if self.validate_every is None else self.validate_every,
            halve_from=(2 if is_text8 else 4) if self.halve_from is None else self.halve_from,
            out=self.out or Path("runs") / f"{name}-{model.name}-{self.seed}",
        )

    def check(self) -> None:
        super().check()
        for name in ("window", "validate_every", "halve_from", "max_valid_windows"):
            self.at_least(name, 1)
        self.positive("lr")
        self.check_model(lambda: self.model.build("abc"))


class TextTask(Task):
    """A :class:`~bipolar.models.CharRNN` on streams of a text, the state carried from window to window."""

    unit = "bpc"

    def __init__(self, config: TextConfig, corpus: Corpus) -> None:
        self.config, self.corpus = config, corpus
        self.state: Tensor | None = None
        self.offset = 0
        self.validations: list[float] = []

    def setup(self, fabric: "Fabric") -> None:
        c = self.config
        world = fabric.world_size
        if c.batch_size % world:
            raise DataError(f"--batch-size {c.batch_size}: {world} processes cannot share it evenly")
        share = c.batch_size // world
        self.part = slice(fabric.global_rank * share, (fabric.global_rank + 1) * share)
        self.fabric = fabric
        self.streams = {
            split: Streams(self.corpus[split], c.batch_size, c.window, f"{self.corpus.name}, {split}")
            for split in ("train", "valid", "test")
        }
        model = c.model.build(self.corpus.vocabulary)
        if c.model.lsuv != "none":
            generator = torch.Generator().manual_seed(c.seed)
            model.initialise(c.model.lsuv, balance=c.model.balance, generator=generator)
        optimizer = torch.optim.Adam(model.parameters(), lr=c.lr or 2e-4)
        self.model, self.optimizer = fabric.setup(model, optimizer)
        self.generator = torch.Generator(device=fabric.device if fabric.device.type != "mps" else "cpu")
        self.generator.manual_seed(c.seed * 1_000_003 + fabric.global_rank)

    @property
    def steps_per_epoch(self) -> int:
        return self.streams["train"].windows

    @property
    def uniform(self) -> float:
        return math.log2(len(self.corpus.vocabulary))

    def start_epoch(self, epoch: int) -> None:
        self.state = None
        crop = torch.Generator().manual_seed(self.config.seed * 1_000_003 + epoch)
        self.offset = self.streams["train"].offset(crop)

    def loss(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self._window("train", index, self.offset)
        logits, state = self.model(x, self.state, generator=self.generator)
        self.state = state.detach()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), y.flatten())
        return loss, loss.detach() / math.log(2)

    def _window(self, split: str, index: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        x, y = self.streams[split].at(index, offset, self.part)
        return x.to(self.fabric.device), y.to(self.fabric.device)

    @torch.no_grad()
    def evaluate(self, split: str) -> float:
        """BPC on a split, the state carried along from a start at zero."""
        windows = self.streams[split].windows
        if self.config.max_valid_windows is not None:
            windows = min(windows, self.config.max_valid_windows)
        total, state = torch.zeros((), device=self.fabric.device), None
        for index in range(windows):
            x, y = self._window(split, index)
            logits, state = self.model(x, state)
            total += torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), y.flatten())
        return mean_over_processes(self.fabric, total / windows / math.log(2))

    def after_epoch(self, epoch: int, final: bool) -> dict[str, Any] | None:
        c = self.config
        if not final and (epoch + 1) % (c.validate_every or 4):
            return None
        value = self.evaluate("valid")
        halve = bool(self.validations) and not value < self.validations[-1]
        self.validations.append(value)
        if halve and len(self.validations) >= (c.halve_from or 4):
            for group in self.optimizer.param_groups:
                group["lr"] /= 2
        return {"valid_bpc": value, "lr": float(self.optimizer.param_groups[0]["lr"])}

    def is_best(self) -> bool:
        return self.validations[-1] == min(self.validations)

    def test(self) -> dict[str, Any]:
        metrics = {"test_bpc": self.evaluate("test")}
        return metrics | ({"best_valid_bpc": min(self.validations)} if self.validations else {})

    def rate(self, seconds: float) -> str:
        return f"{self.config.batch_size * self.config.window / max(seconds, 1e-9):,.0f} characters/s"

    def state_dict(self) -> dict[str, Any]:
        state = self.state
        if self.fabric.world_size > 1 and state is not None:
            state = torch.cat(list(cast(Tensor, self.fabric.all_gather(state))), dim=1)
        return {
            "state": None if state is None else state.cpu(),
            "generator": of_all_processes(self.generator.get_state(), self.fabric),
            "offset": self.offset,
            "validations": self.validations,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        carried, generator = state["state"], state["generator"]
        if carried is not None:
            self.state = carried[:, self.part].to(self.fabric.device)
        if len(generator) == self.fabric.world_size:  # else each process begins anew
            self.generator.set_state(of_process(generator, self.fabric))
        self.offset, self.validations = state["offset"], state["validations"]


def train_text(config: TextConfig, *, show: bool = True) -> dict[str, Any]:
    """Trains by a configuration, from the beginning or from the last checkpoint; returns ``result.json``."""
    config = prepared(config)
    corpus = _corpus_of(config)
    return perform(config, TextTask(config, corpus), show=show, vocabulary=corpus.vocabulary, text=corpus.digest())


def text_task(config: TextConfig) -> TextTask:
    return TextTask(config.filled(), _corpus_of(config))


def _corpus_of(config: TextConfig) -> Corpus:
    """The text of a run, which has to be the one that it began with."""
    corpus = load_text(config.data, data_directory(config.data_dir), config.split)
    if config.out is not None and (config.out / "config.json").exists():
        before = stored(config.out)
        if before.get("vocabulary") != corpus.vocabulary or before.get("text") != corpus.digest():
            raise DataError(f"--data {config.data}: this is not the text that {config.out} began with")
    return corpus


def evaluate_text(run: Path, split: str, data_dir: Path | None = None) -> dict[str, float]:
    """The metrics of a run's best model on a split."""
    if split not in SPLITS:
        raise DataError(f"--split {split}: expected one of {', '.join(SPLITS)}")
    config = load_config(TextConfig, run, data_dir)
    task = TextTask(config, _corpus_of(config))
    with torch.random.fork_rng(devices=[]):
        task.setup(Machine(accelerator="auto").fabric())
    task.model.load_state_dict(best_of(run)["model"])
    task.model.eval()
    return {f"{split}_bpc": task.evaluate(split)}
