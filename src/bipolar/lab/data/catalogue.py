"""The table of all data sets."""

from pathlib import Path

from bipolar._tools.table import text_table
from bipolar.lab.data.files import CIFAR10, PTB, TEXT8, TEXT8_START, RemoteFile
from bipolar.lab.data.images import CIFAR10_CLASSES
from bipolar.lab.data.text import python_docs

TEXTS = {"ptb": PTB, "text8": TEXT8, "text8-74M": (TEXT8_START,)}
IMAGES = {"cifar10": CIFAR10}


def table(directory: Path) -> str:
    """All data sets with their files, sizes, symbols or classes, and the state of their checksums."""
    rows: list[tuple[str, str, str, str, str]] = []
    for name, files in (TEXTS | IMAGES).items():
        for file in files:
            rows.append((name, *_row(file, directory, of_text=name in TEXTS)))
    text = python_docs()
    symbols = f"{len(set(text))} symbols"
    rows.append(("python-docs", "(in Python)", f"{len(text):,}", symbols, "varies with the version"))
    rows.append(("digits", "(in scikit-learn)", "", f"{len(CIFAR10_CLASSES)} classes", ""))
    return text_table(["data", "file", "bytes", "of", "state"], rows)


def _row(file: RemoteFile, directory: Path, of_text: bool) -> tuple[str, str, str, str]:
    path = directory / file.path
    if not path.exists():
        return str(path), "", "", f"not there; comes from {file.url}"
    kinds = f"{_symbols(path)} symbols" if of_text else f"{len(CIFAR10_CLASSES)} classes"
    algorithm = file.digest.partition(":")[0]
    state = f"{algorithm} right" if file.intact(path) else f"{algorithm} WRONG: remove it"
    return str(path), f"{path.stat().st_size:,}", kinds, state


def _symbols(path: Path) -> int:
    symbols: set[int] = set()
    with path.open("rb") as opened:
        while block := opened.read(1 << 24):
            symbols |= set(block)
    return len(symbols)
