"""Files that are whole or not there."""

import errno
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; what is written there takes the place of ``path`` once it is complete, and not before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds a directory for this process alone; a lock goes with the process that has it, however that ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("ab") as file:
        try:
            import fcntl  # which Windows has not: there is no lock then

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ModuleNotFoundError:
            pass
        except BlockingIOError:
            raise FileExistsError(errno.EEXIST, "another process is at work here", str(directory)) from None
        yield


def write_json(path: Path, value: Any) -> None:
    """Writes ``value`` as JSON, without NaN."""
    with replacing(path) as part:
        part.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file, in hexadecimal."""
    state = hashlib.new(algorithm)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()
