"""A start from the weights of another run, and the runs that a run goes back to."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bipolar._tools.files import digest, read_json
from bipolar.lab.errors import UsageError
from bipolar.lab.training.runs import stored
from bipolar.lab.training.trained import trained_weights
from bipolar.models._hub import WEIGHTS
from bipolar.models._load import OF_RUN

#: The facts about a run that one which starts from it keeps.
KEPT = ("config", "vocabulary", "commit", "machine", "versions", "start")


class Start:
    """The run that another one starts from.

    Args:
        run: its directory, or one that ``bipolar export`` wrote
        task: the kind of run that it has to be
    """

    def __init__(self, run: Path, task: str) -> None:
        self.run, self.values = run, stored(run)
        if self.values["task"] != task:
            raise UsageError(f"--start {run}: a run of {self.values['task']}, not of {task}")
        self.weights: dict[str, Tensor] = trained_weights(run)

    @property
    def origin(self) -> dict[str, Any]:
        """The start as ``config.json`` keeps it: the run's settings, its length so far, and those it started from."""
        facts = {name: self.values[name] for name in KEPT if name in self.values}
        model, result = self.run / OF_RUN / WEIGHTS, self.run / "result.json"
        if model.exists():
            facts["weights"] = digest(model)
        if result.exists():
            facts |= {name: value for name, value in read_json(result).items() if name in ("step", "seconds")}
        return facts

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
