"""The length of a run."""

from dataclasses import dataclass

#: The paper's epochs.
EPOCHS = 200


@dataclass(frozen=True, kw_only=True)
class Length:
    """The length of a run, and how often it is saved, logged and judged."""

    max_epochs: int
    max_steps: int | None
    checkpoint_every: int
    log_every: int
    patience: int

    def total(self, steps_per_epoch: int) -> int:
        """The steps of the whole run."""
        total = self.max_epochs * steps_per_epoch
        return total if self.max_steps is None else min(total, self.max_steps)
