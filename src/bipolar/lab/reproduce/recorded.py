"""Runs that stand in the record of an item, and count as done where their directories are missing.

A clone has the records and not the runs. So that more seeds, or more runs of an item, join those of its record, the
record is evidence for its own item. Results are not kept run by run, therefore all of it counts or nothing: see
:meth:`Recorded.stands`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bipolar.lab.reproduce.outcomes import Outcome, Results, halved_for_slowness
from bipolar.lab.reproduce.records import read_record
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.trials import Trial
from bipolar.lab.training.text import TextConfig


@dataclass(frozen=True)
class Recorded:
    """The results of a record by seed, and the outcomes of its runs by seed and name, without metrics."""

    results: Mapping[int, Results] = field(default_factory=dict)
    outcomes: Mapping[int, Mapping[str, Outcome]] = field(default_factory=dict)
    complete: bool = False

    @property
    def seeds(self) -> int:
        """The number of its seeds."""
        return max(self.outcomes, default=0)

    def stands(self, trials: Mapping[int, Mapping[str, Trial]]) -> bool:
        """Whether all runs of the record are trials of its item as it is now, by name, configuration and search."""
        return all(
            _as_now(outcome.config, trials.get(seed, {}).get(name))
            and not halved_for_slowness(outcome.result.get("attempts", []))
            for seed, outcomes in self.outcomes.items()
            for name, outcome in outcomes.items()
        )


def name_in_record(name: str, seed: int) -> str:
    """The name that the run of a seed has in the record of its item."""
    return name if seed == 1 else f"{name}, seed {seed}"


def read_recorded(directory: Path, item: str, scale: Scale) -> Recorded:
    """The runs in the record of an item; none if it is missing, damaged or of another scale."""
    record = read_record(directory, item)
    if record is None or record["scale"] != scale:
        return Recorded()
    outcomes: dict[int, dict[str, Outcome]] = {}
    try:
        for key, run in record["runs"].items():
            name, _, seed = key.partition(", seed ")
            origin = {part: value for part, value in run.items() if part not in ("config", "result")}
            outcomes.setdefault(int(seed or 1), {})[name] = Outcome(run["config"], run["result"], [], origin)
        results = {seed: record["by_seed"][str(seed)] for seed in outcomes}
        return Recorded(results, outcomes, bool(record["complete"]))
    except (KeyError, ValueError, TypeError, AttributeError):
        return Recorded()


def _as_now(stored: dict[str, Any], trial: Trial | None) -> bool:
    """Whether a stored configuration is that of a trial; settings that it lacks, which are newer, had their default."""
    if trial is None:
        return False
    if isinstance(trial.config, TextConfig) and "balance" not in stored["model"]:
        return False  # from before it was a setting: the network started with equal variances
    try:
        return type(trial.config).from_json(stored).to_json() == trial.config.to_json()
    except (KeyError, TypeError, AttributeError):  # a setting that is none any more
        return False
