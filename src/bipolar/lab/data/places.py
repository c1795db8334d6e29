"""Data sets by name, and the places where they, and files of one's own, are looked for."""

import os
from pathlib import Path

from bipolar.lab.errors import UsageError

TEXTS = ("ptb", "text8", "text8-74M", "python-docs")
IMAGES = ("cifar10", "digits")
#: The sets that come with Python and the packages, and have no place of their own.
INCLUDED = ("python-docs", "digits")
SPLITS = ("train", "valid", "test")
DEFAULT_SPLIT = (0.9, 0.05, 0.05)


def data_directory(given: Path | None) -> Path:
    """``given``, else the environment variable ``BIPOLAR_DATA``, else ``data`` in the current directory."""
    return given or Path(os.environ.get("BIPOLAR_DATA") or "data")


def own_data(data: str, data_dir: Path | None, names: tuple[str, ...], kind: str) -> Path:
    """The file or directory that ``--data`` names: as a path from here, or in the data directory, there by its name
    alone, too, because a run may come from another machine. A directory that was given goes before the path from here.
    """
    directory = data_directory(data_dir)
    inside = [directory / data, directory / Path(data).name]
    here = [Path(data)]
    for path in (*inside, *here) if data_dir is not None else (*here, *inside):
        if path.is_dir() if kind == "directory" else path.is_file():
            return path
    raise UsageError(
        f"--data {data}: neither one of {', '.join(names)} nor a {kind}, here or in {directory}. If {Path(data).name} "
        "is somewhere else, --data-dir DIRECTORY says in which directory it is"
    )


def place_of(data: str, data_dir: Path | None, names: tuple[str, ...], kind: str) -> Path | None:
    """The directory in which the data of a run were found, to find them again from anywhere; None without one."""
    if data in INCLUDED:
        return None
    if data in names:
        return data_directory(data_dir).absolute()
    return own_data(data, data_dir, names, kind).absolute().parent
