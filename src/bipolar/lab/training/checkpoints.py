"""Checkpoints that are whole or not there: the last two, and the best."""

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import torch

from bipolar.files import digest, replacing
from bipolar.lab.data import DataError

KEPT = 2


def best_of(run: Path) -> dict[str, Any]:
    """The checkpoint of a run's best validation so far, or its last if it has not been validated yet."""
    checkpoints = Checkpoints(run / "checkpoints")
    saved = checkpoints.best() or checkpoints.last()
    if saved is None:
        raise DataError(f"{run}: there is no checkpoint yet")
    return saved


class Checkpoints:
    """The checkpoints of a run, in a directory; each with its SHA-256 beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Writes the checkpoint of a step, and removes all but the last two; the best stays."""
        path = self._write(f"step-{step:09d}.pt", state)
        for old in self._steps()[:-KEPT]:
            _digest_of(old).unlink(missing_ok=True)
            old.unlink()
        return path

    def save_best(self, state: dict[str, Any]) -> Path:
        return self._write("best.pt", state)

    def last(self) -> dict[str, Any] | None:
        """The newest checkpoint that is intact; a broken one is named on stderr, and the one before it taken."""
        for path in reversed(self._steps()):
            state = self._read(path)
            if state is not None:
                return state
            print(f"{path}: this checkpoint is broken; going back to the one before", file=sys.stderr)
        return None

    def best(self) -> dict[str, Any] | None:
        path = self.directory / "best.pt"
        return self._read(path) if path.exists() else None

    def _steps(self) -> list[Path]:
        return sorted(self.directory.glob("step-*.pt"))

    def _write(self, name: str, state: dict[str, Any]) -> Path:
        path = self.directory / name
        with replacing(path) as part:
            with part.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            written = digest(part)
            with replacing(_digest_of(path)) as digest_part:  # first: a digest without a checkpoint does no harm
                digest_part.write_text(written + "\n")
        return path

    def _read(self, path: Path) -> dict[str, Any] | None:
        """The checkpoint, or None if it is not what was written."""
        try:
            if _digest_of(path).read_text().strip() != digest(path):
                return None
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError):
            return None
        return state


def _digest_of(path: Path) -> Path:
    return path.with_suffix(".sha256")
