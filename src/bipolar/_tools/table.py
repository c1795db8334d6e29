"""Tables as text."""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

#: The width of what is written to files and pipes.
_NO_TERMINAL = 100_000
#: The least width of a column that is folded.
_NARROW = 12


def text_table(header: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None) -> str:
    """Columns as wide as they need to be; floats with four significant digits, None as a dash.

    Texts are folded where the lines would be longer than ``width``. Default: that of the terminal, if there is one
    """
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    numeric = [any(isinstance(row[i], (int, float)) for row in rows) for i in range(len(header))]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    width = _width_of_terminal() if width is None else width
    widths = _folded(widths, numeric, width - 2 * (len(header) - 1))
    lines = [line for row in cells for line in _lines(row, widths, numeric)]
    head = len(_lines(cells[0], widths, numeric))
    return "\n".join([*lines[:head], "  ".join("-" * w for w in widths), *lines[head:]])


def _width_of_terminal() -> int:
    """The columns of the terminal that the output goes to; without one, more than any table has."""
    shown = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if shown else _NO_TERMINAL


def _folded(widths: list[int], numeric: list[bool], available: int) -> list[int]:
    """The widths of columns, the widest text made narrower until all fit; numbers are never folded."""
    widths = list(widths)
    while sum(widths) > available:
        texts = [i for i, number in enumerate(numeric) if not number and widths[i] > _NARROW]
        if not texts:
            break
        widths[max(texts, key=lambda i: widths[i])] -= 1
    return widths


def _lines(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    """A row as lines, one if nothing in it has to be folded."""
    columns = [
        textwrap.wrap(cell, width) if len(cell) > width else [cell] for cell, width in zip(row, widths, strict=True)
    ]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(texts, widths, numeric, strict=True)
        ).rstrip()
        for texts in zip_longest(*columns, fillvalue="")
    ]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
