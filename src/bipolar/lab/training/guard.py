"""The definition of divergence, one for text and images."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Divergence:
    """The step at which a run was found not to converge, and the reason."""

    step: int
    reason: str


class Guard:
    """Watches the loss of every step.

    A run has diverged if its loss is not finite; or is ten times that of a uniform guess; or, after ``patience`` steps,
    is still or again no better than a uniform guess. The third is judged by the mean loss of the last hundred steps (a
    quarter of ``patience``, if that is less), with a margin of one per cent: a network that has lost all it knew comes
    that close by chance.

    Args:
        uniform: the loss of a uniform guess
        patience: the steps after which a run has to be better than a uniform guess
    """

    FACTOR, MARGIN, WINDOW = 10.0, 0.01, 100

    def __init__(self, uniform: float, patience: int) -> None:
        self.uniform, self.patience = uniform, patience
        self.recent: deque[float] = deque(maxlen=min(self.WINDOW, math.ceil(patience / 4)))

    def check(self, step: int, loss: float) -> Divergence | None:
        """Judges the loss of a step; ``step`` counts from 1."""
        self.recent.append(loss)
        if not math.isfinite(loss):
            return Divergence(step, "the loss is not finite")
        if loss > self.FACTOR * self.uniform:
            return Divergence(step, f"the loss is more than {self.FACTOR:g} times that of a uniform guess")
        if step >= self.patience and sum(self.recent) / len(self.recent) >= (1 - self.MARGIN) * self.uniform:
            return Divergence(step, f"the loss is no better than a uniform guess after {step} steps")
        return None

    def check_evaluation(self, step: int, metrics: Mapping[str, object]) -> Divergence | None:
        """Judges the metrics of a validation or a test, which may fail where training does not."""
        for name, value in metrics.items():
            if isinstance(value, float) and not math.isfinite(value):
                return Divergence(step, f"the loss is not finite ({name})")
        return None

    def state_dict(self) -> dict[str, list[float]]:
        return {"recent": list(self.recent)}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        self.recent.extend(state["recent"])
