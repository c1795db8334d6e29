"""One progress display for all trials: those that run now, and about how long the rest takes."""

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from bipolar.lab.reproduce.cost import speed, steps_of
from bipolar.lab.reproduce.trials import Trial
from bipolar.lab.training.journal import QUIET, duration, read_metrics


@dataclass(frozen=True)
class Reported:
    """The progress of a trial by its metrics: the share of its steps from 0 to 1, and the seconds that they took."""

    share: float
    seconds: float


class Display:
    """Progress and remaining time, from the metrics that trials write, wherever they run.

    The time of a trial is estimated from its own steps, and before its first ones from those of the other trials.
    """

    def __init__(self, trials: Sequence[Trial], data_dir: Path | None = None, every: float = 1.0) -> None:
        self.trials, self.every = trials, every
        self.steps = [steps_of(trial.config, data_dir) for trial in trials]
        self.guesses = [speed().seconds(trial.config, data_dir) for trial in trials]
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"), console=self.console
        )
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Display":
        self.start, self.before = time.monotonic(), self._reported()
        if self.trials:
            self.bar = self.progress.add_task("", total=None, left="")
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

    def _reported(self) -> list[Reported]:
        return [reported(trial, steps) for trial, steps in zip(self.trials, self.steps, strict=True)]

    def _show(self) -> str:
        now = self._reported()
        costs = estimate(now, self.guesses)
        done, before = (sum(c * r.share for c, r in zip(costs, rs, strict=True)) for rs in (now, self.before))
        total, spent = sum(costs), time.monotonic() - self.start
        rate = (done - before) / spent if spent else 0.0  # above 1 if trials run side by side
        left = f"about {duration((total - done) / rate)} left" if rate > 0 else ""
        ended = sum(trial.done for trial in self.trials)
        running = [trial.directory.name.rpartition("-")[0] for trial in self.trials if _running(trial)]
        what = f"{ended} of {len(self.trials)} runs done; now {', '.join(running) or 'none'}"
        self.progress.update(self.bar, description=what, completed=done, total=total, left=left)
        return f"{what}; {100 * done / max(total, 1):.0f} %, {left}"


def _running(trial: Trial) -> bool:
    return not trial.done and (trial.directory / "config.json").exists()


def reported(trial: Trial, steps: float) -> Reported:
    """The progress of a trial; of a search, that of its last attempt."""
    files = sorted(trial.directory.rglob("metrics.jsonl"), key=lambda path: path.stat().st_mtime)
    rows = read_metrics(files[-1].parent) if files else []
    last = rows[-1] if rows else {"step": 0}
    return Reported(1.0 if trial.done else min(last["step"] / steps, 1.0), float(last.get("seconds", 0.0)))


def estimate(trials: Sequence[Reported], guesses: Sequence[float]) -> list[float]:
    """The seconds of each trial from its first to its last step.

    A trial without steps takes its guess, corrected by how far the guesses about the others were off.
    """
    known = [(trial, guess) for trial, guess in zip(trials, guesses, strict=True) if trial.share and trial.seconds]
    guessed = sum(trial.share * guess for trial, guess in known)
    factor = sum(trial.seconds for trial, _ in known) / guessed if guessed else 1.0
    return [
        trial.seconds / trial.share if trial.share and trial.seconds else factor * guess
        for trial, guess in zip(trials, guesses, strict=True)
    ]
