"""Checkpoints, written whole or not at all: the last two, and the best."""

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bipolar._tools.files import digest, replacing
from bipolar.lab.errors import UsageError

#: What every checkpoint has.
PARTS = {"model", "optimizer", "task", "guard", "precision", "rng", "loop"}
#: Checkpoints that are kept besides the best.
LAST = 2


def best_of(run: Path) -> dict[str, Any]:
    """The checkpoint of a run's best validation so far, or its last if it has not been validated yet."""
    checkpoints = Checkpoints(run / "checkpoints")
    saved = checkpoints.best() or checkpoints.last()
    if saved is None:
        raise UsageError(f"{run}: there is no checkpoint yet")
    return saved


def weights_of(saved: dict[str, Any]) -> dict[str, Tensor]:
    """The weights of a checkpoint that count: their average, where there is one and it is the better one."""
    weights: dict[str, Tensor] = saved["average" if saved.get("weights") == "averaged" else "model"]
    return weights


class Checkpoints:
    """The checkpoints of a run, in a directory; each with its SHA-256 beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Writes the checkpoint of a step, and removes all but the last two, and what a crash left; the best stays."""
        path = self._write(f"step-{step:09d}.pt", state)
        for old in self._steps()[:-LAST]:
            _digest_of(old).unlink(missing_ok=True)
            old.unlink()
        for left in self.directory.glob("*.part"):  # by a process that was killed: the run has one at a time
            left.unlink()
        return path

    def save_best(self, state: dict[str, Any]) -> Path:
        return self._write("best.pt", state)

    def last(self) -> dict[str, Any] | None:
        """The newest intact checkpoint; a broken one is named on stderr and passed over."""
        paths = [*reversed(self._steps()), self.directory / "best.pt"]  # best.pt is as complete, only older
        broken = []
        for path in paths:
            state = self._read(path) if path.exists() else None
            if state is not None:
                return state
            if path.exists():
                print(f"{path}: this checkpoint is broken", file=sys.stderr)
                broken.append(path)
        if broken:
            raise UsageError(
                f"{self.directory}: there is no checkpoint that is not broken; remove the run to start again"
            )
        return None

    def best(self) -> dict[str, Any] | None:
        """The best checkpoint; None if there is none, or if it is broken, which is said on stderr."""
        path = self.directory / "best.pt"
        state = self._read(path) if self.has_best else None
        if state is None and self.has_best:
            print(f"{path}: this checkpoint is broken; the last one takes its place", file=sys.stderr)
        return state

    @property
    def any(self) -> bool:
        return any(self.directory.glob("*.pt"))

    @property
    def has_best(self) -> bool:
        return (self.directory / "best.pt").exists()

    def _steps(self) -> list[Path]:
        return sorted(self.directory.glob("step-*.pt"))

    def _write(self, name: str, state: dict[str, Any]) -> Path:
        path = self.directory / name
        with replacing(path) as part:
            with part.open("wb") as file:
                try:
                    torch.save(state, file)
                except RuntimeError as error:  # torch's error for a failed write does not name the file
                    free = shutil.disk_usage(self.directory).free
                    raise OSError(
                        errno.EIO, f"cannot write ({free / 1e6:,.0f} MB are free; {error})", str(path)
                    ) from None
                file.flush()
                os.fsync(file.fileno())
            # Before the checkpoint, and with the digest of the one that it replaces: after a crash between the two,
            # that one is still there, and still whole.
            digests = [digest(part), *([digest(path)] if self._is_whole(path) else [])]
            with replacing(_digest_of(path)) as digest_part:
                digest_part.write_text("\n".join(digests) + "\n")
        return path

    def _is_whole(self, path: Path) -> bool:
        """Whether a checkpoint has a digest that is written beside it."""
        try:
            return digest(path) in _digest_of(path).read_text(encoding="ascii").split()
        except (OSError, ValueError):
            return False

    def _read(self, path: Path) -> dict[str, Any] | None:
        """The checkpoint, or None if it is broken."""
        try:
            if not self._is_whole(path):
                return None
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception:  # a file of any content may have a digest that fits
            return None
        return state if isinstance(state, dict) and state.keys() >= PARTS else None


def _digest_of(path: Path) -> Path:
    return path.with_suffix(".sha256")
