"""The state of a run, from its files alone: ``metrics.jsonl``, and what ``config.json`` and ``result.json`` add.

The files may be written at this moment, cut off, damaged, or not there yet. What cannot be read counts as not there.
"""

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeGuard

from bipolar.lab.training.journal import read_metrics
from bipolar.lab.watch.places import METRICS

Status: TypeAlias = Literal["no steps yet", "running", "silent", "finished", "did not converge"]
Row: TypeAlias = Mapping[str, Any]

#: A run is silent after so many seconds, and so many of its usual pauses, without a line of metrics.
SILENT, PAUSES = 60.0, 10
#: Lines of metrics over which the pace of a run is measured.
RECENT = 20
#: Numbers from here on are none that a run writes.
LARGEST = 1e15
#: Numbers in a line of metrics that no validation has found.
NOT_FOUND = ("step", "epoch", "seconds", "lr")


@dataclass(frozen=True)
class State:
    """A run at a moment.

    Args:
        rows: the lines of its metrics
        config: its ``config.json``, or what there is of it
        result: its ``result.json``; empty until it has ended
        age: the seconds since its last line
    """

    rows: Sequence[Row] = ()
    config: Row = field(default_factory=dict)
    result: Row = field(default_factory=dict)
    age: float = 0.0

    @property
    def status(self) -> Status:
        if self.result.get("status") in ("finished", "did not converge"):
            return "finished" if self.result["status"] == "finished" else "did not converge"
        if not self.rows:
            return "no steps yet"
        pause = (self.pace or 0.0) * self._steps_between
        return "silent" if self.age > max(SILENT, PAUSES * pause) else "running"

    @property
    def ended(self) -> bool:
        return self.status in ("finished", "did not converge")

    @property
    def step(self) -> int:
        return max((row["step"] for row in self.rows), default=0)

    @property
    def total(self) -> int | None:
        """The steps of the whole run; of one from before they were written down, by its settings or its epochs."""
        for steps in (self.config.get("steps"), self._settings.get("max_steps")):
            if _is_count(steps):
                return int(steps)
        epochs, whole = self._settings.get("max_epochs"), any(row.get("epoch") == 2 for row in self.rows)
        of_first = max((row["step"] for row in self.rows if row.get("epoch") == 1), default=0)
        return of_first * int(epochs) if whole and _is_count(epochs) else None

    @property
    def _settings(self) -> Row:
        settings = self.config.get("config")
        return settings if isinstance(settings, dict) else {}

    @cached_property
    def losses(self) -> list[tuple[int, float]]:
        """The training loss by step, where it is finite."""
        name = next((key for row in self.rows for key in row if key in ("train_bpc", "train_loss")), "")
        return self._column(name)

    def _column(self, name: str) -> list[tuple[int, float]]:
        """The finite numbers of a name, by step."""
        found = ((row["step"], _number(row.get(name))) for row in self.rows)
        return [(step, value) for step, value in found if value is not None]

    @property
    def rate(self) -> float | None:
        """The learning rate, as last written down; before that, as configured."""
        rates = self._column("lr")
        return rates[-1][1] if rates else _number(self._settings.get("lr"))

    @property
    def validation(self) -> dict[str, float | str]:
        """The numbers of the last validation or test, by name; words where they were not finite."""
        for row in reversed(self.rows):
            found = {k: v for k, v in row.items() if k not in NOT_FOUND and not k.startswith("train_")}
            if found:
                return {k: v for k, v in found.items() if isinstance(v, float | str)}
        return {}

    @property
    def seconds(self) -> float:
        """The seconds that the run took so far."""
        return max((seconds for _, seconds in self._column("seconds")), default=0.0)

    @property
    def pace(self) -> float | None:
        """The seconds of a step, over the last lines."""
        timed = self._column("seconds")[-RECENT:]
        if not timed or timed[-1][0] <= 0:
            return None
        (first, began), (last, now) = timed[0], timed[-1]
        pace = (now - began) / (last - first) if last > first else now / last  # one line alone: from the start
        return max(pace, 0.0)

    @property
    def left(self) -> float | None:
        """The seconds that the rest of a running run takes, validation not counted."""
        if self.status != "running" or self.total is None or self.pace is None:
            return None
        return max(self.total - self.step, 0) * self.pace

    @property
    def _steps_between(self) -> int:
        """The usual steps between two lines."""
        steps = [row["step"] for row in self.rows[-RECENT:]]
        return max((b - a for a, b in pairwise(steps)), default=max(self.step, 1))


class Watched:
    """A run whose files are read again when they have changed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stamp: object = None
        self.known = State()

    def state(self, now: float) -> State:
        """The state at a moment, in seconds of the clock of files."""
        names = (METRICS, "config.json", "result.json")
        stats = [_stat(self.directory / name) for name in names]
        stamp = [stat and (stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats]
        if stamp != self.stamp:
            self.stamp = stamp
            config, result = (_read(self.directory / name) for name in names[1:])
            self.known = State(_rows(self.directory), config, result)
        age = max(now - stats[0].st_mtime, 0.0) if stats[0] else 0.0
        return replace(self.known, age=age)


def _rows(directory: Path) -> list[Row]:
    try:
        rows = read_metrics(directory)
    except (OSError, ValueError, RecursionError):
        return []
    return [row for row in rows if isinstance(row, dict) and _is_count(row.get("step"))]


def _read(path: Path) -> Row:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        values = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(values, dict):
            return values
    return {}


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _number(value: object) -> float | None:
    """A finite number, if it is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < LARGEST and math.isfinite(value) else None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST
