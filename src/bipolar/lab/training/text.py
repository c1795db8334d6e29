"""Training a character-level language model, by the paper's recipe."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

import torch
import tyro
from lightning_fabric import Fabric
from torch import Tensor

from bipolar.gain import Statistic
from bipolar.lab.data import Corpus, DataError, Streams, data_directory, load_text
from bipolar.lab.data.text import SPLITS
from bipolar.lab.mistakes import Gradient, mistaken
from bipolar.lab.training.checkpoints import best_of
from bipolar.lab.training.loop import Length, Machine, Task, mean_over_processes, train
from bipolar.models.char_rnn import Cell, CharRNN
from bipolar.pattern import Pattern
from bipolar.rnn import StackedRNN


@dataclass(frozen=True)
class TextModel:
    """The model. Text8's dropout rates are 0.01 each unless given, as in the paper."""

    num_layers: int = 36
    """Recurrent layers."""
    hidden_size: int = 256
    """Units of each layer."""
    nonlinearity: str = "belu"
    """The activation function, by name."""
    cell: Cell = "stack"
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
    lsuv: Statistic = "variance"
    """What LSUV sets to 1."""
    recompute: bool = False
    """Save memory: compute the states anew in the backward pass."""
    gradient: Gradient = "right"
    """A mistake in the gradient, to study what it does: see the item ``aliasing``."""

    def build(self, vocabulary: str) -> CharRNN:
        options = dataclasses.asdict(self)
        del options["lsuv"]
        rates = ("dropout", "recurrent_dropout", "block_dropout")
        options |= {name: options[name] or 0.0 for name in rates}
        gradient = options.pop("gradient")
        model = CharRNN(vocabulary, options.pop("hidden_size"), options.pop("num_layers"), **options)
        if gradient != "right":
            model.rnn = mistaken(cast(StackedRNN, model.rnn), gradient)
        return model


@dataclass(frozen=True)
class TextConfig:
    """Train a character-level language model."""

    data: str = "ptb"
    """``ptb``, ``text8``, ``python-docs``, or the path of a UTF-8 text file."""
    model: TextModel = field(default_factory=TextModel)
    """The model."""
    machine: Annotated[Machine, tyro.conf.arg(name="")] = field(default_factory=Machine)
    """Where it is computed."""
    out: Path | None = None
    """The directory of the run. Default: runs/ and what distinguishes it."""
    resume: Path | None = None
    """The directory of a run to go on with, as it was configured."""
    data_dir: Path | None = None
    """Where the data is. Default: the environment variable BIPOLAR_DATA, else ./data."""
    split: tuple[float, float, float] = (0.9, 0.05, 0.05)
    """How a text file is cut into training, validation and test part."""
    max_epochs: int = 200
    """Epochs at most."""
    max_steps: int | None = None
    """Steps at most."""
    batch_size: int = 128
    """Parallel streams, over all devices together."""
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
    patience: int = 1000
    """Steps within which a run has to be better than a uniform guess."""
    seed: int = 1
    """The seed of everything random."""
    checkpoint_every: int = 200
    """Steps between checkpoints."""
    log_every: int = 10
    """Steps between lines of metrics."""

    def filled(self) -> "TextConfig":
        """With the paper's value wherever nothing was given."""
        is_text8 = self.data == "text8"
        rates = ("dropout", "recurrent_dropout", "block_dropout")
        default = 0.01 if is_text8 and self.model.cell == "stack" else 0.0
        missing: dict[str, Any] = {name: default for name in rates if getattr(self.model, name) is None}
        model = dataclasses.replace(self.model, **missing)
        name = Path(self.data).stem if self.data not in ("ptb", "text8", "python-docs") else self.data
        cell = model.nonlinearity if model.cell == "stack" else model.cell
        return dataclasses.replace(
            self,
            model=model,
            lr=(5e-5 if is_text8 else 2e-4) if self.lr is None else self.lr,
            validate_every=(1 if is_text8 else 4) if self.validate_every is None else self.validate_every,
            halve_from=(2 if is_text8 else 4) if self.halve_from is None else self.halve_from,
            out=self.out or Path("runs") / f"{name}-{model.num_layers}x{model.hidden_size}-{cell}-{self.seed}",
        )

    def check(self) -> None:
        counts = ("max_epochs", "max_steps", "batch_size", "window", "checkpoint_every", "log_every", "patience")
        for name in (*counts, "validate_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"--{name.replace('_', '-')} {value}: expected at least 1")
        if self.lr is not None and not self.lr > 0:
            raise DataError(f"--lr {self.lr}: expected a positive number")


class TextTask(Task):
    """A :class:`~bipolar.models.CharRNN` on streams of a text, the state carried from window to window."""

    unit = "bpc"

    def __init__(self, config: TextConfig, corpus: Corpus) -> None:
        self.config, self.corpus = config, corpus
        self.state: Tensor | None = None
        self.offset = 0
        self.validations: list[float] = []

    def setup(self, fabric: Fabric) -> None:
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
        model.initialise(c.model.lsuv, generator=torch.Generator().manual_seed(c.seed))
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
        generator = self.generator.get_state()
        if self.fabric.world_size > 1:
            if state is not None:
                state = torch.cat(list(cast(Tensor, self.fabric.all_gather(state))), dim=1)
            generator = cast(Tensor, self.fabric.all_gather(generator))
        return {
            "state": None if state is None else state.cpu(),
            "generator": generator.cpu(),
            "offset": self.offset,
            "validations": self.validations,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        carried, generator = state["state"], state["generator"]
        if carried is not None:
            self.state = carried[:, self.part].to(self.fabric.device)
        self.generator.set_state(generator[self.fabric.global_rank] if generator.ndim > 1 else generator)
        self.offset, self.validations = state["offset"], state["validations"]


def train_text(config: TextConfig) -> dict[str, Any]:
    """Trains by a configuration, from the beginning or from the last checkpoint; returns ``result.json``."""
    if config.resume is not None:
        config = load_config(config.resume, data_dir=config.data_dir)
    config = config.filled()
    config.check()
    out = config.out or Path("runs")
    corpus = load_text(config.data, data_directory(config.data_dir), config.split)
    if (out / "config.json").exists() and to_json(load_config(out)) != to_json(config):
        raise DataError(
            f"--out {out}: there is another run here; --resume {out} to go on with it, or choose another --out"
        )
    length = Length(
        max_epochs=config.max_epochs,
        max_steps=config.max_steps,
        checkpoint_every=config.checkpoint_every,
        log_every=config.log_every,
        patience=config.patience,
    )
    stored: dict[str, Any] = {"task": "text", "config": to_json(config), "vocabulary": corpus.vocabulary}
    return train(TextTask(config, corpus), stored, out, length, config.machine, config.seed)


def to_json(config: TextConfig) -> dict[str, Any]:
    """A configuration without what differs from machine to machine: where it is, and where the data is."""
    values = dataclasses.asdict(config)
    for name in ("out", "resume", "data_dir"):
        del values[name]
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain


def load_config(run: Path, data_dir: Path | None = None) -> TextConfig:
    """The configuration of a run."""
    try:
        values = json.loads((run / "config.json").read_text(encoding="utf-8"))["config"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{run}: not the directory of a run ({error})") from None
    values["model"], values["machine"] = TextModel(**values["model"]), Machine(**values["machine"])
    values["split"] = tuple(values["split"])
    return TextConfig(**values, out=run, data_dir=data_dir)


def evaluate_run(run: Path, split: str, data_dir: Path | None = None) -> dict[str, float]:
    """The metrics of a run's best model on a split."""
    if split not in SPLITS:
        raise DataError(f"--split {split}: expected one of {', '.join(SPLITS)}")
    config = load_config(run, data_dir)
    corpus = load_text(config.data, data_directory(data_dir), config.split)
    task = TextTask(config, corpus)
    with torch.random.fork_rng(devices=[]):
        task.setup(Machine(accelerator="auto").fabric())
    task.model.load_state_dict(best_of(run)["model"])
    task.model.eval()
    return {f"{split}_bpc": task.evaluate(split)}
