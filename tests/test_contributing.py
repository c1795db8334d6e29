"""CONTRIBUTING.md and ``make help`` against the tree and the Makefile."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT


def the_map() -> dict[str, set[str]]:
    """The entries of each directory on the map, by its path; an entry stands deeper than its directory."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (drawing,) = re.findall(r"^## The map\n.*?```\n(.*?)```", text, flags=re.DOTALL | re.MULTILINE)
    entries: dict[str, set[str]] = {}
    above: list[tuple[int, str]] = []
    for line in drawing.splitlines():
        depth, name = len(line) - len(line.lstrip()), line.split()[0]
        above = [(d, directory) for d, directory in above if d < depth]
        entries.setdefault("".join(directory for _, directory in above), set()).add(name)
        above.append((depth, name))
    return entries


@pytest.mark.parametrize("directory", ["src/bipolar/", "src/bipolar/lab/"])
def test_the_map_shows_every_entry_and_no_other(directory: str) -> None:
    def is_shown(path: Path) -> bool:
        is_code = path.suffix == ".py" or any(path.glob("*.py"))  # not a directory that holds caches alone
        return is_code and not path.name.startswith("__")

    paths = filter(is_shown, (ROOT / directory).iterdir())
    tree = {f"{path.name}/" if path.is_dir() else path.name for path in paths}
    assert {name for name in the_map()[directory] if not name.startswith("__")} == tree


def test_every_directory_on_the_map_exists() -> None:
    names = the_map()[""]
    assert "src/bipolar/" in names
    assert [name for name in names if not (ROOT / name).is_dir()] == []


def test_every_path_in_the_text_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w/.]+)`", text)
    assert len(paths) > 4
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_make_help_names_every_target() -> None:
    (line,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    command = [shutil.which("make") or "make", "--no-print-directory", "help"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert {text.split()[1] for text in told.stdout.splitlines()} == set(line.split())
