"""What data there is."""

from pathlib import Path

from bipolar.lab.data.files import PTB, TEXT8, RemoteFile
from bipolar.lab.data.text import python_docs
from bipolar.table import text_table

FILES = {"ptb": PTB, "text8": TEXT8}


def table(directory: Path) -> str:
    """All data sets with their files, sizes, symbols and the state of their checksums."""
    rows: list[tuple[str, str, str, str, str]] = []
    for name, files in FILES.items():
        for file in files:
            rows.append((name, *_row(file, directory)))
    text = python_docs()
    rows.append(("python-docs", "(in Python)", f"{len(text):,}", str(len(set(text))), "varies with the version"))
    return text_table(["data", "file", "bytes", "symbols", "state"], rows)


def _row(file: RemoteFile, directory: Path) -> tuple[str, str, str, str]:
    path = directory / file.path
    if not path.exists():
        return str(path), "", "", f"not there; comes from {file.url}"
    symbols: set[int] = set()
    with path.open("rb") as opened:
        while block := opened.read(1 << 24):
            symbols |= set(block)
    algorithm = file.digest.partition(":")[0]
    state = f"{algorithm} right" if file.intact(path) else f"{algorithm} WRONG: remove it"
    return str(path), f"{path.stat().st_size:,}", str(len(symbols)), state
