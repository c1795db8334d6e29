"""The metrics and the progress of a run: metrics.jsonl, TensorBoard, a progress bar."""

import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

#: Seconds between two lines of progress where there is no terminal to draw a bar on.
QUIET = 30.0


class Journal:
    """Writes metrics to ``metrics.jsonl``, one JSON object a line, and to TensorBoard; shows progress on stderr.

    Args:
        directory: the directory of the run
        total: the number of steps of the whole run
        keep: the bytes of ``metrics.jsonl`` up to the step ``start``; the rest is cut off, as its steps will be run
            again
        start: the step to go on from
        show: whether to show progress
    """

    def __init__(self, directory: Path, total: int, *, keep: int = 0, start: int = 0, show: bool = True) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "metrics.jsonl"
        self.file = self.path.open("ab")
        self.file.truncate(min(keep, self.path.stat().st_size))  # which may have been shortened since
        self.file.seek(0, os.SEEK_END)
        self.total = total
        self.board = _tensorboard(directory, start)
        self.console = Console(stderr=True, quiet=not show)
        self.shown = time.monotonic()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not (show and self.console.is_terminal),
        )
        self.bar = self.progress.add_task("starting", total=total, completed=start)

    def __enter__(self) -> "Journal":
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
        self.file.close()
        if self.board is not None:
            self.board.close()

    @property
    def size(self) -> int:
        """The length of ``metrics.jsonl``, safely on disk."""
        os.fsync(self.file.fileno())
        return self.file.tell()

    def write(self, step: int, epoch: int, **values: Any) -> None:
        finite = {
            name: value if not isinstance(value, float) or math.isfinite(value) else str(value)
            for name, value in values.items()
        }
        self.file.write(json.dumps({"step": step, "epoch": epoch, **finite}, allow_nan=False).encode() + b"\n")
        self.file.flush()
        if self.board is not None:
            for name, value in values.items():
                if isinstance(value, float):
                    self.board.add_scalar(name, value, step)

    def show(self, step: int, text: str) -> None:
        self.progress.update(self.bar, completed=step, description=text)
        if not self.console.is_terminal and time.monotonic() - self.shown > QUIET:
            self.shown = time.monotonic()
            self.say(f"step {step:,} of {self.total:,}: {text}")

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """The rows of a run's ``metrics.jsonl``; a last line that was cut off is left out."""
    path = directory / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    rows = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows


def _tensorboard(directory: Path, start: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print("TensorBoard is not installed: metrics go to metrics.jsonl alone", file=sys.stderr)
        return None
    return SummaryWriter(str(directory / "tensorboard"), purge_step=start + 1)


def duration(seconds: float) -> str:
    """Such as ``2 h 05 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours = minutes / 60
    return f"{minutes // 60} h {minutes % 60:02d} min" if hours < 48 else f"{hours / 24:,.0f} days"
