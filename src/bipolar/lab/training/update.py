"""Recipes: the optimiser of a run, its learning rate over time, clipping, and the average of its weights."""

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import tyro

from bipolar.lab.errors import UsageError
from bipolar.lab.training.flags import FloatFlag, IntFlag

if TYPE_CHECKING:
    import torch
    from lightning_fabric import Fabric
    from torch import nn

OptimizerName: TypeAlias = Literal["sgd", "adam", "muon", "path_sgd"]
Decay: TypeAlias = Literal["linear", "cosine", "cooldown", "constant"]

#: Rates and factors from here on overflow in single precision, if training has not diverged before.
LARGEST = 1e9
#: The share of a run over which ``cooldown`` lets the rate fall.
COOLDOWN = 0.4
#: The share of a run over which the rate rises, and the rate of Adam beside Muon's, unless given.
WARM_UP, OF_MUON = 0.1, 0.08


@dataclass(frozen=True, kw_only=True)
class Update:
    """The way to the weights: the paper's, or one for short runs. All but --recipe are settings of the fast one."""

    recipe: Literal["paper", "fast"] = "paper"
    """The paper's recipe, or a fast one: a high rate that rises and falls, and an optimiser that bears it."""
    optimizer: Annotated[OptimizerName | None, tyro.conf.arg(help_behavior_hint="")] = None
    """The optimiser; adam is AdamW with betas of 0.9 and 0.99, and path_sgd for the cells relu, irnn and skipping of
    text. Default: adam for text, muon for images."""
    adam_lr: FloatFlag = None
    """With Muon, the rate of Adam for the parameters that it leaves. Default: 0.08 of the learning rate."""
    warm_up: FloatFlag = None
    """The share of the run over which the learning rate rises. Default: 0.1."""
    decay: Annotated[Decay | None, tyro.conf.arg(help_behavior_hint="")] = None
    """How it falls to zero afterwards: along a line, a cosine, over the last 0.4 of the run, or not at all. Default:
    linear."""
    clip: FloatFlag = None
    """Clip the norm of the gradient at this value. Default: 1 for text, no clipping for images."""
    average: FloatFlag = None
    """Evaluate a running average of the weights beside the weights themselves; its horizon is this share of the steps
    so far, 1 for all of them. Of text the better of the two counts, of images the average. Default: none."""
    rescues: IntFlag = None
    """Go on after so many exploded losses: such a step is not taken, and the state of a text begins at zeros again.
    After three in a row the next one ends the run. Default: none, the first one does."""

    @property
    def fast(self) -> bool:
        return self.recipe == "fast"

    def check(self) -> None:
        """Raises a ``UsageError`` if a setting is out of its range, or has no place in the paper's recipe."""
        for option in fields(self):
            value = getattr(self, option.name)
            if not self.fast and value != option.default:
                flag = f"--{option.name.replace('_', '-')} {value}"
                raise UsageError(f"{flag}: the paper's recipe has no such setting; add --recipe fast, or leave it out")
        for name in ("adam_lr", "clip"):
            value = getattr(self, name)
            if value is not None and not (0 < value < LARGEST):
                raise UsageError(f"--{name.replace('_', '-')} {value}: expected a positive number below {LARGEST:g}")
        if self.adam_lr is not None and self.optimizer not in (None, "muon"):
            raise UsageError(f"--adam-lr {self.adam_lr}: the rate beside Muon's; add --optimizer muon, or leave it out")
        if self.rescues is not None and self.rescues < 1:
            raise UsageError(f"--rescues {self.rescues}: expected at least 1")
        if self.warm_up is not None and not 0 <= self.warm_up < 1:
            raise UsageError(f"--warm-up {self.warm_up}: expected a share of the run, 0 or more and below 1")
        if self.average is not None and not 0 < self.average <= 1:
            raise UsageError(f"--average {self.average}: expected a share of the steps, above 0 and 1 at most")

    def factor(self, step: int, total: int) -> float:
        """The learning rate of a step of a run of ``total`` steps, relative to its peak.

        It rises along a line over the first steps, and falls from there on by ``decay``; at step ``total``, which is
        the first after the run, it is 0, unless it is constant.
        """
        warm_up = round((WARM_UP if self.warm_up is None else self.warm_up) * total)
        if step < warm_up:
            return (step + 1) / warm_up
        done = (step - warm_up) / max(total - warm_up, 1)
        falls = {
            "linear": 1 - done,
            "cosine": (1 + math.cos(math.pi * done)) / 2,
            "cooldown": min(1.0, (total - step) / min(COOLDOWN * total, total - warm_up)),
            "constant": 1.0,
        }
        return falls[self.decay or "linear"]

    def make(
        self,
        name: OptimizerName,
        model: "nn.Module",
        lr: float,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        precision: str = "32-true",
    ) -> "torch.optim.Optimizer":
        """An optimiser with its peak rates; path-SGD, which asks the network for its paths, is made elsewhere.

        In bf16-mixed precision the iteration of Muon is in bfloat16, too.
        """
        import torch

        from bipolar.optim import Muon, groups

        if name == "sgd":
            return torch.optim.SGD(
                model.parameters(), lr, momentum=momentum, weight_decay=weight_decay, nesterov=momentum > 0
            )
        if name == "adam":
            return torch.optim.AdamW(model.parameters(), lr, betas=(0.9, 0.99), weight_decay=weight_decay)
        adam_lr = OF_MUON * lr if self.adam_lr is None else self.adam_lr
        ns_dtype = torch.bfloat16 if precision == "bf16-mixed" else None
        return Muon(groups(model), lr, momentum=momentum, weight_decay=weight_decay, adam_lr=adam_lr, ns_dtype=ns_dtype)


class Schedule:
    """Rates and clipping of a run, applied before each of its steps.

    Args:
        update: the settings
        fabric: the devices of the run
        model: the model, set up by ``fabric``
        optimizer: its optimiser, too; its rates are those of the peak
        clip: the largest norm of the gradient, or None
    """

    def __init__(
        self,
        update: Update,
        fabric: "Fabric",
        model: "nn.Module",
        optimizer: "torch.optim.Optimizer",
        clip: float | None,
    ) -> None:
        self.update, self.fabric, self.model, self.optimizer, self.clip = update, fabric, model, optimizer, clip
        self.peaks = [float(group["lr"]) for group in optimizer.param_groups]

    def after(self, step: int, total: int) -> str:
        """A sentence on the learning rate of a run that becomes longer."""
        rate = self.peaks[0] * self.update.factor(step, total)
        return f"The learning rate follows the schedule of the longer run: from step {step:,} on, {rate:g} and so forth"

    def before(self, step: int, total: int) -> None:
        """Sets the rates of a step, and clips its gradient."""
        factor = self.update.factor(step, total)
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * factor
        if self.clip is not None:
            self.fabric.clip_gradients(self.model, self.optimizer, max_norm=self.clip, error_if_nonfinite=False)
