"""The progress of a long loop besides training: a bar, or a line now and then where there is no terminal."""

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track

from bipolar.lab.training.journal import QUIET, duration

T = TypeVar("T")


def followed(items: Sequence[T], what: str, *, show: bool = True) -> Iterator[T]:
    """The items one by one, while stderr says how far it is, and about how long the rest takes."""
    console = Console(stderr=True, quiet=not show)
    if not show or console.is_terminal:
        yield from track(items, what, console=console, transient=True, disable=not show)
        return
    began = said = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if now - said > QUIET:
            said = now
            left = duration((now - began) / done * (len(items) - done))
            console.print(f"{what}: {done:,} of {len(items):,}, about {left} to go", highlight=False, soft_wrap=True)
        yield item
