"""The interface between the loop and whatever it trains."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bipolar.lab.training.average import Average, Weights
from bipolar.lab.training.update import Schedule
from bipolar.models._hub import HubMixin

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Task(ABC):
    """A model, its data and its schedule; the loop knows nothing else of them."""

    #: the name of the loss in the metrics, such as ``bpc``
    unit: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    #: the rates and the clipping of the fast recipe; None where the task sets its rates itself
    schedule: Schedule | None = None
    #: the average of the weights, if there is one, and which of the two count
    average: Average | None = None
    weights: Weights = "raw"
    #: steps between looks at the validation set within an epoch; None for no such looks
    look_every: int | None = None

    @abstractmethod
    def setup(self, fabric: "Fabric") -> None:
        """Makes model, optimizer and data, for this process."""

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int: ...

    @property
    @abstractmethod
    def uniform(self) -> float:
        """The loss of a uniform guess, in the unit of the metrics."""

    @abstractmethod
    def start_epoch(self, epoch: int) -> None: ...

    @abstractmethod
    def loss(self, index: int) -> tuple[Tensor, Tensor]:
        """The loss to differentiate, and the same in the unit of the metrics, for a batch of the epoch."""

    @abstractmethod
    def forget(self) -> None:
        """Drops what a loss that exploded has left behind for the next one."""

    @abstractmethod
    def after_epoch(self, epoch: int, final: bool) -> dict[str, Any] | None:
        """Validates if it is time to, adapts the schedule; returns metrics."""

    def look(self) -> dict[str, Any]:
        """Metrics on the validation set; nothing of the run changes."""
        raise NotImplementedError(f"{type(self).__name__} has no looks within an epoch: leave look_every at None")

    @abstractmethod
    def schedule_from(self, step: int, total: int) -> str:
        """A sentence on the learning rate of a run that becomes longer: after ``step``, up to ``total``."""

    @abstractmethod
    def is_best(self) -> bool:
        """Whether the last validation was the best so far."""

    @abstractmethod
    def test(self) -> dict[str, Any]:
        """Metrics on the test set."""

    def counting(self) -> AbstractContextManager[None]:
        """The weights that count in the model, which then goes back to those of the last step."""
        if self.average is None or self.weights == "raw":
            return nullcontext()
        return self.average.in_place()

    @property
    def outcome(self) -> dict[str, Any]:
        """Facts for ``result.json`` besides the metrics."""
        return {}

    @abstractmethod
    def portable(self) -> HubMixin | None:
        """The model without fabric, for :func:`bipolar.load`; None if no file describes it."""

    @abstractmethod
    def rate(self, seconds: float) -> str:
        """The speed of training, given the seconds of a step, such as ``31,000 characters/s``."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The state of the task besides model and optimizer. Called in all processes."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
