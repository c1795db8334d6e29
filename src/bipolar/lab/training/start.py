"""A start from the weights of another run, and the runs that a run goes back to."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bipolar.lab.errors import UsageError
from bipolar.lab.training.runs import result_of, stored
from bipolar.lab.training.trained import trained_weights

#: The facts about a run that one which starts from it keeps.
KEPT = ("config", "vocabulary", "commit", "machine", "versions", "start", "extended")
#: Settings of a model that its weights fit alone, though weights of others have the same shapes; also of rivals.
OF_WEIGHTS = ("cell", "nonlinearity", "skip_every", "skip_scale", "pattern")
OF_RIVALS = ("heads", "context", "skip")


class Start:
    """The run that another one starts from.

    Args:
        run: its directory, or one that ``bipolar export`` wrote
        task: the kind of run that it has to be
    """

    def __init__(self, run: Path, task: str) -> None:
        self.run = run
        try:
            self.values, self.result = stored(run), result_of(run)
            if self.values["task"] != task:
                raise UsageError(f"{run}: a run of {self.values['task']}, not of {task}")
            if not isinstance(self.values["config"].get("model"), dict) or "vocabulary" not in self.values:
                raise UsageError(f"{run}: its config.json is not as it was written")
            if self.result.get("status", "finished") != "finished":
                raise UsageError(f"{run}: this run did not converge; start from another")
            self.weights: dict[str, Tensor] = trained_weights(run)
        except UsageError as error:
            raise UsageError(f"--start {error}") from None

    @property
    def origin(self) -> dict[str, Any]:
        """The start as ``config.json`` keeps it: the run's settings, its length so far, and those it started from."""
        facts = {name: self.values[name] for name in KEPT if name in self.values}
        facts |= {name: self.result[name] for name in ("step", "seconds", "exported") if name in self.result}
        return facts | {"directory": str(self.run.resolve()), "weights": self.digest}

    @property
    def digest(self) -> str:
        """The digest of the weights, by names and values."""
        found = hashlib.sha256()
        for name, value in sorted(self.weights.items()):
            found.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    def check(self, model: Mapping[str, Any]) -> None:
        """Refuses settings of a model by which the weights would be those of another function."""
        before = self.values["config"]["model"]
        rivals = [values.get("rival", {}) for values in (before, model)]
        found = [(name, before.get(name, model[name]), model[name]) for name in OF_WEIGHTS]
        found += [(name, *(rival.get(name) for rival in rivals)) for name in OF_RIVALS]
        for name, theirs, ours in found:
            if theirs != ours:
                flag = f"--model.{name.replace('_', '-')}"
                raise UsageError(f"--start {self.run}: that network has {flag} {theirs}, this one {ours}")

    def load_into(self, model: nn.Module) -> None:
        """Gives a model the weights."""
        try:
            model.load_state_dict(self.weights)
        except RuntimeError as error:
            first = str(error).splitlines()[-1].strip()
            raise UsageError(
                f"--start {self.run}: its weights are those of another network ({first}); give the --model options "
                "that it was trained with"
            ) from None


def lineage(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs that a ``config.json`` goes back to, the first one first."""
    found = []
    while isinstance(values.get("start"), dict):
        values = values["start"]
        found.append(values)
    return found[::-1]
