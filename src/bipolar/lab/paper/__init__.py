"""The tables and figures of the paper, by name."""

from collections.abc import Callable
from pathlib import Path

from bipolar.lab.paper import figure1, figure2

#: What ``bipolar reproduce`` can make: a function from the directory to write to, to the files written.
ITEMS: dict[str, Callable[[Path], list[Path]]] = {
    "figure1": figure1.reproduce,
    "figure2": figure2.reproduce,
}
