"""The definition of divergence, one for text and images."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

#: The first word of the reason of a run that has not diverged, and has learned nothing either.
SLOW = "slow: "
#: A loss so many times that of a uniform guess has exploded.
FACTOR = 10.0


@dataclass(frozen=True)
class Divergence:
    """The step at which a run was found not to converge, and the reason."""

    step: int
    reason: str


def explosion(loss: float, uniform: float) -> str | None:
    """How a loss has exploded, beside that of a uniform guess; None if it has not."""
    if not math.isfinite(loss):
        return "the loss is not finite"
    if loss > FACTOR * uniform:
        return f"the loss is more than {FACTOR:g} times that of a uniform guess"
    return None


class Guard:
    """Watches the loss of every step.

    A run has diverged if its loss is not finite, or is ten times that of a uniform guess. A run that after ``patience``
    steps is no better than a uniform guess ends too. If its loss was twice that of a uniform guess at some step, it has
    diverged; if not, it is slow, which says nothing against its learning rate. The mean loss of the last hundred steps
    (a quarter of ``patience``, if that is less) is compared with a uniform guess, with a margin of one per cent: a
    network that has lost all it knew comes that close by chance.

    Args:
        uniform: the loss of a uniform guess
        patience: the steps after which a run has to be better than a uniform guess
        rescues: the exploded losses after which a run may go on; one that follows on several others ends it all the
            same, because the weights are at fault then, and not the state
    """

    BURST, MARGIN, WINDOW, IN_A_ROW = 2.0, 0.01, 100, 3

    def __init__(self, uniform: float, patience: int, rescues: int = 0) -> None:
        self.uniform, self.patience, self.rescues = uniform, patience, rescues
        self.rescued = self.in_a_row = 0
        self.highest = 0.0
        self.recent: deque[float] = deque(maxlen=min(self.WINDOW, math.ceil(patience / 4)))

    def rescue(self, loss: float) -> bool:
        """Whether a loss has exploded and the run goes on all the same, without its step; such rescues are counted."""
        if explosion(loss, self.uniform) is None:
            self.in_a_row = 0
        elif self.rescued < self.rescues and self.in_a_row < self.IN_A_ROW:
            self.rescued, self.in_a_row = self.rescued + 1, self.in_a_row + 1
            return True
        return False

    def check(self, step: int, loss: float) -> Divergence | None:
        """Judges the loss of a step; ``step`` counts from 1."""
        self.recent.append(loss)
        self.highest = max(self.highest, loss)
        exploded = explosion(loss, self.uniform)
        if exploded is not None:
            after = f", after {self.rescued} rescues" if self.rescued else ""
            return Divergence(step, f"{exploded}{after}")
        if step >= self.patience and sum(self.recent) / len(self.recent) >= (1 - self.MARGIN) * self.uniform:
            reason = f"the loss is no better than a uniform guess after {step} steps"
            if self.highest >= self.BURST * self.uniform:
                return Divergence(step, f"{reason}, and was {self.highest / self.uniform:.1f} times that")
            return Divergence(step, f"{SLOW}{reason}")
        return None

    def check_evaluation(self, step: int, metrics: Mapping[str, object]) -> Divergence | None:
        """Judges the metrics of a validation or a test, which may fail where training does not."""
        for name, value in metrics.items():
            if isinstance(value, float) and not math.isfinite(value):
                return Divergence(step, f"the loss is not finite ({name})")
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"recent": list(self.recent), "highest": self.highest, "rescued": [self.rescued, self.in_a_row]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.recent.extend(state["recent"])
        self.highest = state.get("highest", max(self.recent, default=0.0))  # older checkpoints lack it
        self.rescued, self.in_a_row = state.get("rescued", (0, 0))


def finite_gradients(model: "nn.Module") -> bool:
    """Whether no gradient is infinite or not a number, which a sum of its values shows."""
    import torch

    sums = [p.grad.sum() for p in model.parameters() if p.grad is not None]
    return not sums or bool(torch.stack(sums).isfinite().all())


def is_slow(reason: str) -> bool:
    """Whether a reason, as ``result.json`` has it, says that a run was slow, and did not diverge."""
    return reason.startswith(SLOW)
