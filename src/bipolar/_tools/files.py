"""Files that are complete or absent."""

import errno
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; at the end of the block it replaces ``path``, after an error it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Locks a directory for this process; the lock ends with the process, however that ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("ab") as file:
        try:
            import fcntl  # absent on Windows, where there is no lock

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


def read_json(path: Path) -> Any:
    """The value in a JSON file; a ``ValueError`` for one that is not JSON, or is nested too deeply to be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file, in hexadecimal."""
    state = hashlib.new(algorithm)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()
