"""Pages whose code runs: a Markdown file is executed from top to bottom, and its outputs and pictures are compared.

A block of ``python`` is executed, with the names of the blocks before it; in a block of ``sh``, the lines that begin
with ``bipolar`` are. A block of ``text`` right after one of them is its output. The pictures of a page, files beside
it, are drawn by its code under the same names. ``<!-- not run -->`` before a block leaves it out.

    python -m tests.helpers.pages docs/guides/*.md      # writes outputs and pictures anew
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: A fenced block, with the remark before it.
BLOCK = re.compile(r"(<!-- not run -->\n)?^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
#: A picture beside the page.
PICTURE = re.compile(r"!\[[^]]*\]\((\w+\.svg)\)")


@dataclass(frozen=True)
class Block:
    """A block of code, the lines before it, and its output, with the place of that in the text of the page."""

    language: str
    code: str
    line: int
    output: str | None
    span: tuple[int, int]


def blocks_of(text: str) -> Iterator[Block]:
    """The blocks of a page that are run."""
    found = list(BLOCK.finditer(text))
    for match, after in zip(found, [*found[1:], None], strict=True):
        left_out, language, code = match.groups()
        if left_out or language not in ("python", "sh"):
            continue
        output, span = None, (match.end(), match.end())
        if after and after[2] == "text" and not text[match.end() : after.start()].strip():
            output, span = after[3], after.span(3)
        yield Block(language, code, text.count("\n", 0, match.start(3)), output, span)


def pictures_of(text: str) -> list[str]:
    return PICTURE.findall(text)


def run(page: Path, directory: Path) -> list[tuple[Block, str]]:
    """Runs a page in a directory; returns its blocks, each with all that it printed."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(directory) if sys.version_info >= (3, 11) else _chdir(directory):
        return [(block, _printed(block, page, names)) for block in blocks_of(page.read_text(encoding="utf-8"))]


def _printed(block: Block, page: Path, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.language == "python":
            # with the lines before it, so that an error names the line of the page
            exec(compile("\n" * block.line + block.code, str(page), "exec"), names)  # noqa: S102 - our own page
        else:
            from bipolar.lab.cli import main

            for line in block.code.replace("\\\n", " ").splitlines():
                if line.startswith("bipolar "):
                    main(shlex.split(line, comments=True)[1:])
    return printed.getvalue()


@contextlib.contextmanager
def _chdir(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def tokens(text: str) -> list[float | str]:
    """The words and numbers of an output, whatever the space between them."""

    def token(word: str) -> float | str:
        share = word.endswith("%")
        try:
            return float(word.rstrip("%,;.")) / (100 if share else 1)
        except ValueError:
            return re.sub("-{2,}", "--", word)

    return [token(word) for word in text.split()]


def agree(shown: str, printed: str) -> bool:
    """Whether two outputs are the same but for the last digits, which are the processor's, and steps of a solver."""

    def same(a: float | str, b: float | str) -> bool:
        if isinstance(a, str) or isinstance(b, str):
            return a == b
        return abs(a - b) <= (1 if a.is_integer() and b.is_integer() else max(0.05, 0.1 * abs(a)))

    a, b = tokens(shown), tokens(printed)
    return len(a) == len(b) and all(map(same, a, b))


def words_in(picture: Path) -> set[str]:
    """The words in a picture by matplotlib, which notes the text that it draws as curves."""
    noted = re.findall(r"<!-- (.*?) -->", picture.read_text(encoding="utf-8"))
    return {text for text in noted if re.search(r"[A-Za-z]{2}", text)}


def update(page: Path) -> None:
    """Writes outputs and pictures of a page anew."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as directory:
        for block, printed in reversed(run(page, Path(directory))):
            if block.output is not None:
                start, end = block.span
                text = text[:start] + "\n".join(line.rstrip() for line in printed.splitlines()) + "\n" + text[end:]
        for name in pictures_of(text):
            shutil.copyfile(Path(directory) / name, page.parent / name)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    import torch

    for given in sys.argv[1:]:
        torch.manual_seed(0)
        update(Path(given).resolve())
