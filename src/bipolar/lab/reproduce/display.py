"""One progress display over all trials: what runs now, how much is left, how long that takes."""

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from bipolar.lab.reproduce.cost import calibration, steps_of
from bipolar.lab.reproduce.trials import Trial
from bipolar.lab.training.journal import QUIET, duration, read_metrics


class Display:
    """Looks at what the trials have written, wherever they run; nobody has to report to it."""

    def __init__(self, trials: Sequence[Trial], data_dir: Path | None = None, every: float = 1.0) -> None:
        self.trials, self.every = trials, every
        self.steps = [steps_of(trial.config, data_dir) for trial in trials]
        self.costs = [calibration().seconds(trial.config, data_dir) for trial in trials]
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"), console=self.console
        )
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Display":
        self.start, self.before = time.monotonic(), self._done()
        if self.trials:
            self.bar = self.progress.add_task("", total=sum(self.costs), left="")
            if self.console.is_terminal:
                self.progress.start()
            self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.set()
        if self.trials:
            self.thread.join()
            if self.console.is_terminal:
                self._show()
                self.progress.stop()

    def _watch(self) -> None:
        said = time.monotonic()
        while not self.stop.wait(self.every):
            line = self._show()
            if not self.console.is_terminal and time.monotonic() - said > QUIET:
                said = time.monotonic()
                print(line, file=sys.stderr, flush=True)

    def _done(self) -> float:
        each = zip(self.trials, self.costs, self.steps, strict=True)
        return sum(cost * share(trial, steps) for trial, cost, steps in each)

    def _show(self) -> str:
        done, total = self._done(), sum(self.costs)
        ended = sum(trial.done for trial in self.trials)
        running = [trial.directory.name.rpartition("-")[0] for trial in self.trials if _running(trial)]
        spent = time.monotonic() - self.start
        rate = (done - self.before) / spent if spent else 0.0
        left = f"about {duration((total - done) / rate)} left" if rate > 0 else ""
        what = f"{ended} of {len(self.trials)} runs done; now {', '.join(running) or 'none'}"
        self.progress.update(self.bar, description=what, completed=done, left=left)
        return f"{what}; {100 * done / max(total, 1):.0f} %, {left}"


def _running(trial: Trial) -> bool:
    return not trial.done and (trial.directory / "config.json").exists()


def share(trial: Trial, steps: float) -> float:
    """How far a trial has come, from 0 to 1; of a search its last attempt counts."""
    if trial.done:
        return 1.0
    files = sorted(trial.directory.rglob("metrics.jsonl"), key=lambda path: path.stat().st_mtime)
    rows = read_metrics(files[-1].parent) if files else []
    return min(rows[-1]["step"] / steps, 1.0) if rows else 0.0
