"""The types that users' type checkers see."""

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.pages import blocks_of
from tests.helpers.paths import ROOT

#: One mistake in each of the last lines, which a checker cannot see if a name has no type.
NAMES = """
import bipolar
from bipolar.lab.training.text import TextConfig

text: str = bipolar.load("run", bipolar.models.CharRNN).generate("a", 1)
wrong: int = bipolar.models.CharRNN("ab")
wrong = bipolar.BReLU()
wrong = bipolar.functional.brelu
wrong = bipolar.load("run", bipolar.models.WideResNet)
wrong = TextConfig()
bipolar.nothing
"""


def test_the_examples_of_the_pages_and_the_public_names(tmp_path: Path) -> None:
    """In one process of mypy, with the cache that checking the project leaves."""
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/laboratory.md")]
    examples = [block.code for page in pages for block in blocks_of(page) if block.language == "python"]
    files = {f"example_{number}.py": example for number, example in enumerate(examples)}
    assert len(files) == 4
    for name, content in (files | {"names.py": NAMES}).items():
        (tmp_path / name).write_text(content)
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", *sorted(map(str, tmp_path.glob("*.py")))],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(ROOT / "src")},
    )
    assert result.stderr == ""
    errors = [line.split(": error: ")[0] for line in result.stdout.splitlines() if ": error: " in line]
    last = len(NAMES.splitlines())
    # by their names alone: from its cache, mypy gives the path that a file had before
    assert [Path(error).name for error in errors] == [f"names.py:{line}" for line in range(last - 5, last + 1)]
