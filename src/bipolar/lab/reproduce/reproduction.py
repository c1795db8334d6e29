"""The reproduction of items: every trial once, a record beside the published values, and a picture."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bipolar._tools.files import write_json
from bipolar.lab.errors import UsageError
from bipolar.lab.provenance import provenance
from bipolar.lab.reproduce.executors import Executor, one_after_another
from bipolar.lab.reproduce.item import Computation, Item, Training
from bipolar.lab.reproduce.outcomes import Outcome, Results
from bipolar.lab.reproduce.pictures import draw, picture_path
from bipolar.lab.reproduce.records import finite, read_record, record_path, results_of
from bipolar.lab.reproduce.scales import SCALES, Scale
from bipolar.lab.reproduce.trials import Trial, trial_of, with_seed
from bipolar.lab.training.config import RunConfig


class Reproduction:
    """Items at one scale, in one directory, where nothing finished is run again.

    Args:
        items: the items to reproduce
        scale: the size of networks, data and runs
        out: the directory of the records; the runs are in ``out / "runs"``
        data_dir: the directory of the data
        seeds: the number of seeds for each training. Default: the item's own
    """

    def __init__(
        self, items: Sequence[Item], scale: Scale, out: Path, data_dir: Path | None = None, seeds: int | None = None
    ) -> None:
        self.items, self.scale, self.out, self.data_dir, self.seeds = items, scale, out, data_dir, seeds

    def run(self, executor: Executor = one_after_another) -> list[Path]:
        """Runs and computes what is missing; returns the paths of the records and pictures."""
        for item in self.items:
            self._check_scale(item)
        for item in self.items:
            if isinstance(item, Computation) and not self.done(item):
                print(f"{item.name}: {item.title}", flush=True)
                self._compute(item)
        for trials in (self.first_trials, self.other_trials):  # the other seeds may depend on the first
            left = [trial for trial in _once(trials()) if not trial.done]
            executor(left, self.data_dir, self._record_all_with)
        for item in self.items:
            if isinstance(item, Training):
                self.record(item)
        return [path for item in self.items for path in self.paths(item)]

    def done(self, item: Item) -> bool:
        """Whether nothing is left to do for an item."""
        if isinstance(item, Computation):
            record = read_record(self.out, item.name)
            drawn = item.draw is None or picture_path(self.out, item.name).exists()
            return record is not None and bool(record.get("complete")) and drawn
        if not isinstance(item, Training):
            raise TypeError(f"item: expected a Training or a Computation, got {item!r}")
        first = list(self._trials(item, 1).values())
        return all(trial.done for trial in first) and all(trial.done for trial in self._others(item))

    def first_trials(self) -> Iterator[Trial]:
        """All trials with the first seed, in the order of the items."""
        for item in self.items:
            if isinstance(item, Training):
                yield from self._trials(item, 1).values()

    def other_trials(self) -> Iterator[Trial]:
        """All trials with the other seeds whose first seed is done."""
        for item in self.items:
            if isinstance(item, Training):
                yield from self._others(item)

    def paths(self, item: Item) -> list[Path]:
        """The record of an item and its pictures, if they exist."""
        candidates = [
            record_path(self.out, item.name),
            *(picture_path(self.out, item.name, suffix) for suffix in ("svg", "png")),
        ]
        return [path for path in candidates if path.exists()]

    def _seeds(self, item: Training) -> int:
        return item.seeds[self.scale] if self.seeds is None else self.seeds

    def _others(self, item: Training) -> Iterator[Trial]:
        for seed in range(2, self._seeds(item) + 1):
            yield from self._trials(item, seed).values()

    def _trials(self, item: Training, seed: int) -> dict[str, Trial]:
        """The trials of a seed by name; after the first seed only those whose first seed is done."""
        found = {name: trial_of(config, self.out / "runs") for name, config in item.runs(self.scale).items()}
        if seed == 1:
            return found
        configs: dict[str, RunConfig | None] = {
            name: with_seed(trial.config, seed, trial.outcome()) for name, trial in found.items() if trial.done
        }
        return {name: trial_of(config, self.out / "runs") for name, config in configs.items() if config is not None}

    def _check_scale(self, item: Item) -> None:
        record = read_record(self.out, item.name)
        if record is not None and record.get("scale") != self.scale:
            raise UsageError(
                f"--out {self.out}: {item.name}.json is there already, of the scale {record.get('scale')}; "
                "choose another --out"
            )

    def _record_all_with(self, trial: Trial) -> None:
        for item in self.items:
            if isinstance(item, Training):
                names = {t.directory for t in (*self._trials(item, 1).values(), *self._others(item))}
                if trial.directory in names:
                    self.record(item, picture=False)  # drawing takes longer than some runs: at the end

    def record(self, item: Training, picture: bool = True) -> None:
        """Writes the record of an item from the trials that are done, if any."""
        by_seed: dict[str, Results] = {}
        outcomes: dict[str, Outcome] = {}
        for seed in range(1, self._seeds(item) + 1):
            ready = {name: trial.outcome() for name, trial in self._trials(item, seed).items() if trial.done}
            if ready:
                by_seed[str(seed)] = item.collect(ready)
                outcomes |= {name if seed == 1 else f"{name}, seed {seed}": o for name, o in ready.items()}
        if not by_seed:
            return
        values = {
            "complete": self.done(item),
            "seeds": self._seeds(item),
            "seconds": round(sum(outcome.result.get("seconds", 0.0) for outcome in outcomes.values()), 1),
            "results": by_seed["1"],
            "by_seed": by_seed,
            "runs": {name: {"config": o.config, "result": o.result, **o.provenance} for name, o in outcomes.items()},
        }
        self._write(item, values)
        if picture:
            draw(item, list(by_seed.values()), self.out)

    def _compute(self, item: Computation) -> None:
        start = time.perf_counter()
        results = finite(item.compute(self.scale, self.data_dir))
        seconds = round(time.perf_counter() - start, 1)
        configuration = dict(item.configuration(self.scale))
        self._write(item, {"complete": True, "configuration": configuration, "seconds": seconds, "results": results})
        draw(item, [results], self.out)

    def _write(self, item: Item, values: dict[str, Any]) -> None:
        head = {"item": item.name, "title": item.title, "scale": self.scale, **provenance()}
        write_json(record_path(self.out, item.name), {**head, "published": item.published, **finite(values)})


def record_again(items: Sequence[Item], directory: Path) -> None:
    """Rebuilds the records in a directory from its runs, and draws the pictures from the records."""
    for item in items:
        record = read_record(directory, item.name)
        if isinstance(item, Training):
            for scale in SCALES if record is None else [record["scale"]]:
                seeds = None if record is None else record.get("seeds") or len(record.get("by_seed", {})) or None
                Reproduction([item], scale, directory, seeds=seeds).record(item, picture=False)
            record = read_record(directory, item.name)
        if record is not None:
            draw(item, results_of(record), directory)


def _once(trials: Iterator[Trial]) -> list[Trial]:
    return list({trial.directory: trial for trial in trials}.values())
