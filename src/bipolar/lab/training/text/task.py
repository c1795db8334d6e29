"""A character-level language model on a text, as a task of the loop."""

import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from bipolar.lab.cells.model import RivalRNN
from bipolar.lab.cells.path_norm import path_sgd
from bipolar.lab.data import Corpus, Streams, load_text
from bipolar.lab.data.places import SPLITS
from bipolar.lab.training.average import Average
from bipolar.lab.training.processes import (
    mean_over_processes,
    of_all_processes,
    of_process,
    share_of_batch,
    without_fabric,
)
from bipolar.lab.training.progress import followed
from bipolar.lab.training.start import Start
from bipolar.lab.training.task import Task
from bipolar.lab.training.text.config import TextConfig
from bipolar.lab.training.update import Schedule
from bipolar.models import CharRNN

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: The norm at which the fast recipe clips the gradient, unless given.
CLIP = 1.0


class TextTask(Task):
    """A :class:`~bipolar.models.CharRNN` on streams of a text, the state carried from window to window.

    Args:
        config: the settings
        corpus: the text
        start: the run whose weights the network begins with. Default: it is initialised as the settings say
    """

    unit = "bpc"

    def __init__(self, config: TextConfig, corpus: Corpus, start: Start | None = None) -> None:
        self.start = start
        self.config, self.recipe, self.corpus, self.look_every = config, config.recipe, corpus, config.look_every
        self.state: Tensor | None = None
        self.offset = 0
        self.validations: list[float] = []

    def setup(self, fabric: "Fabric") -> None:
        c = self.config
        self.part = share_of_batch(c.batch_size, fabric)
        self.fabric = fabric
        self.streams = {
            split: Streams(self.corpus[split], c.batch_size, c.window, f"{self.corpus.name}, {split}")
            for split in SPLITS
        }
        model = c.build(self.corpus.vocabulary)
        if self.start is not None:
            self.start.load_into(model)
        elif isinstance(model, CharRNN) and c.model.lsuv != "none":
            generator = torch.Generator().manual_seed(c.seed)
            model.initialise(c.model.lsuv, balance=c.model.balance, generator=generator)
        optimizer: torch.optim.Optimizer
        if c.update.optimizer == "path_sgd":
            optimizer = path_sgd(cast(RivalRNN, model), c.window, self.recipe.lr)
        elif c.update.fast:
            optimizer = c.update.make(
                c.update.optimizer or "adam",
                model,
                self.recipe.lr,
                weight_decay=c.weight_decay or 0.0,
                precision=c.machine.precision,
            )
        else:
            optimizer = torch.optim.Adam(model.parameters(), lr=self.recipe.lr)
        self.model, self.optimizer = fabric.setup(model, optimizer)
        if c.update.fast:
            clip = CLIP if c.update.clip is None else c.update.clip
            self.schedule = Schedule(c.update, fabric, self.model, self.optimizer, clip)
        if c.update.average is not None:
            self.average = Average(self.model, c.update.average)
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
        if isinstance(network := without_fabric(self.model), RivalRNN):
            network.start_epoch(epoch)
        crop = torch.Generator().manual_seed(self.config.seed * 1_000_003 + epoch)
        self.offset = self.streams["train"].offset(crop)

    def loss(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self._window("train", index, self.offset)
        logits, state = self.model(x, self.state, generator=self.generator)
        self.state = state.detach()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), y.flatten())
        bpc = loss.detach() / math.log(2)
        penalty = getattr(without_fabric(self.model), "penalty", None)
        return loss if penalty is None else loss + penalty, bpc

    def forget(self) -> None:
        self.state = None

    def _window(self, split: str, index: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        x, y = self.streams[split].at(index, offset, self.part)
        return x.to(self.fabric.device), y.to(self.fabric.device)

    @torch.no_grad()
    def evaluate(self, split: str, *, show: bool = False) -> float:
        """BPC on a split, the state carried along from a start at zero."""
        windows = self.streams[split].windows
        if self.config.max_valid_windows is not None:
            windows = min(windows, self.config.max_valid_windows)
        total, state = torch.zeros((), device=self.fabric.device), None
        for index in followed(range(windows), "evaluation", show=show):
            x, y = self._window(split, index)
            logits, state = self.model(x, state)
            total += torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), y.flatten())
        return mean_over_processes(self.fabric, total / windows / math.log(2))

    def look(self) -> dict[str, Any]:
        metrics = {"valid_bpc": self.evaluate("valid")}
        if self.average is not None:
            with self.average.in_place():
                metrics["averaged_valid_bpc"] = self.evaluate("valid")
        return metrics

    def after_epoch(self, epoch: int, final: bool) -> dict[str, Any] | None:
        if not final and (epoch + 1) % self.recipe.validate_every:
            return None
        metrics = self.look()
        value = min(metrics.values())
        if self.average is not None:
            self.weights = "averaged" if value < metrics["valid_bpc"] else "raw"
        halve = bool(self.validations) and not value < self.validations[-1]
        self.validations.append(value)
        if halve and len(self.validations) >= self.recipe.halve_from and self.schedule is None:
            for group in self.optimizer.param_groups:
                group["lr"] /= 2
        return metrics | {"lr": float(self.optimizer.param_groups[0]["lr"])}

    def schedule_from(self, step: int, total: int) -> str:
        rate = float(self.optimizer.param_groups[0]["lr"])
        if self.schedule is not None:
            return self.schedule.after(step, total)
        return (
            f"The learning rate stays at {rate:g}, and is halved by the same rule as before; the validation at step "
            f"{step:,} counts as one of those that decide it"
        )

    def is_best(self) -> bool:
        return self.validations[-1] == min(self.validations)

    def test(self) -> dict[str, Any]:
        metrics = {"test_bpc": self.evaluate("test")}
        return metrics | ({"best_valid_bpc": min(self.validations)} if self.validations else {})

    def portable(self) -> CharRNN | RivalRNN | None:
        right = self.config.model.gradient == "right"  # a stack with a mistake is none that a file could describe
        return cast(CharRNN | RivalRNN, without_fabric(self.model)) if right else None

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
        if len(generator) == self.fabric.world_size:  # else each process keeps its new generator
            self.generator.set_state(of_process(generator, self.fabric))
        self.offset, self.validations = state["offset"], state["validations"]


def text_task(config: TextConfig, start: Start | None = None) -> TextTask:
    """The task of a configuration, with its text."""
    corpus = load_text(config.data, config.data_dir, config.split)
    return TextTask(config, corpus.with_start(config.train_share), start)
