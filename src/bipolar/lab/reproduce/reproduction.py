"""The reproduction of items: every trial once, a record beside the published values, and a picture."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bipolar._tools.files import write_json
from bipolar.lab.errors import UsageError
from bipolar.lab.provenance import provenance
from bipolar.lab.reproduce.executors import Executor, one_after_another
from bipolar.lab.reproduce.item import Computation, Item, Training
from bipolar.lab.reproduce.outcomes import Outcome, Results
from bipolar.lab.reproduce.pictures import draw, picture_path
from bipolar.lab.reproduce.recorded import Recorded, name_in_record, read_recorded
from bipolar.lab.reproduce.records import as_recorded, finite, merged, read_record, record_path, results_of
from bipolar.lab.reproduce.scales import SCALES, Scale
from bipolar.lab.reproduce.trials import Trial, trial_of, trials_by_seed, versions


class Reproduction:
    """Items at one scale, in one directory, where nothing finished is run again.

    What is finished has a run directory, or stands in the record of its item as that was found here; the record then
    grows by what is new.

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
        self._records: dict[str, Recorded] = {}

    def run(self, executor: Executor = one_after_another) -> list[Path]:
        """Runs and computes what is missing; returns the paths of the records and pictures."""
        for item in self.items:
            self._check_scale(item)
        for item in self.items:
            if isinstance(item, Computation) and not self.done(item):
                print(f"{item.name}: {item.title}", flush=True)
                self._compute(item)
        for trials in (self.first_trials, self.other_trials):  # the other seeds may depend on the first
            before: list[Trial] = []
            while (ready := [trial for trial in _left(trials()) if trial.ready]) and ready != before:
                executor(ready, self.data_dir, self._record_all_with)  # then those that start from one of these
                before = ready
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
        trials = self._trials(item)
        return all(trial.done for seed in range(1, self._seeds(item) + 1) for trial in trials[seed].values())

    def first_trials(self) -> Iterator[Trial]:
        """All trials with the first seed, in the order of the items."""
        for item in self.items:
            if isinstance(item, Training):
                yield from self._trials(item)[1].values()

    def other_trials(self) -> Iterator[Trial]:
        """All trials with the other seeds whose first seed is done."""
        for item in self.items:
            if isinstance(item, Training):
                trials = self._trials(item)
                for seed in range(2, self._seeds(item) + 1):
                    yield from trials[seed].values()

    def later_trials(self) -> Iterator[Trial]:
        """A trial for each that the other seeds will have once more of the first seed is done."""
        for item in self.items:
            if isinstance(item, Training):
                first = self._trials(item)[1]
                for names in versions(item.runs(self.scale), item.candidate).values():
                    if not all(first[name].done for name in names):
                        config = first[names[0]].config  # any of its versions: which is best, nobody knows yet
                        for seed in range(2, self._seeds(item) + 1):
                            yield trial_of(replace(config, seed=seed), self.out / "runs")

    def paths(self, item: Item) -> list[Path]:
        """The record of an item and its pictures, if they exist."""
        candidates = [
            record_path(self.out, item.name),
            *(picture_path(self.out, item.name, suffix) for suffix in ("svg", "png")),
        ]
        return [path for path in candidates if path.exists()]

    def _seeds(self, item: Training) -> int:
        return item.seeds[self.scale] if self.seeds is None else self.seeds

    def _recorded(self, item: Training) -> Recorded:
        """The record of an item as it was before this reproduction wrote one."""
        if item.name not in self._records:
            self._records[item.name] = read_recorded(self.out, item.name, self.scale)
        return self._records[item.name]

    def _trials(self, item: Training) -> dict[int, dict[str, Trial]]:
        """The trials of an item by seed and name: of all seeds that were asked for or are in its record."""
        configs, runs, recorded = item.runs(self.scale), self.out / "runs", self._recorded(item)
        seeds = max(self._seeds(item), recorded.seeds)
        trials = trials_by_seed(configs, seeds, runs, recorded.outcomes, item.candidate)
        if recorded.stands(trials):
            return trials
        print(f"{item.name}: its record in {self.out} has runs of another configuration; none of it counts", flush=True)
        self._records[item.name] = Recorded()
        return trials_by_seed(configs, self._seeds(item), runs, {}, item.candidate)

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
                trials = [t for of_seed in self._trials(item).values() for t in of_seed.values()]
                if trial.directory in {t.directory for t in trials}:
                    self.record(item, picture=False)  # drawing takes longer than some runs: at the end

    def record(self, item: Training, picture: bool = True) -> None:
        """Writes the record of an item from the trials that have run here, and those that the record had before.

        Where neither a run nor the end of the last seed is new, the record stays as it is.
        """
        trials, before = self._trials(item), self._recorded(item)
        by_seed: dict[str, Results] = {}
        outcomes: dict[str, Outcome] = {}
        new = False
        for seed, of_seed in trials.items():
            done = {name: trial.outcome() for name, trial in of_seed.items() if trial.done}
            # of those alone: another process may have ended a trial in the meantime
            ran = {name: outcome for name, outcome in done.items() if of_seed[name].ran}
            if done:
                known = before.results[seed] if len(ran) < len(done) else {}
                by_seed[str(seed)] = merged(known, item.collect(ran)) if ran else dict(known)
                outcomes |= {name_in_record(name, seed): outcome for name, outcome in done.items()}
                new = new or bool(ran)
        if not by_seed:
            return
        complete = len(outcomes) == sum(len(of_seed) for of_seed in trials.values())
        values = {
            "complete": complete,
            "seeds": len(trials),
            "seconds": round(sum(outcome.result.get("seconds", 0.0) for outcome in outcomes.values()), 1),
            "results": by_seed["1"],
            "by_seed": by_seed,
            "runs": {name: {"config": o.config, "result": o.result, **o.provenance} for name, o in outcomes.items()},
        }
        if new or (complete and not before.complete):
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
        with as_recorded(record_path(directory, item.name)):
            if isinstance(item, Training):
                for scale in SCALES if record is None else [record["scale"]]:
                    seeds = None if record is None else record.get("seeds") or len(record.get("by_seed", {})) or None
                    Reproduction([item], scale, directory, seeds=seeds).record(item, picture=False)
                record = read_record(directory, item.name)
            if record is not None:
                draw(item, results_of(record), directory)


def _left(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that are not done, each once."""
    return list({trial.directory: trial for trial in trials if not trial.done}.values())
