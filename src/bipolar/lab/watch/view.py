"""Runs as lines of a table: drawn once, or again and again until someone stops it."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bipolar.lab.training.journal import duration
from bipolar.lab.watch.places import runs_in
from bipolar.lab.watch.state import State, Watched

#: The heights of a sparkline, and for terminals without these characters.
HEIGHTS, PLAIN = "▁▂▃▄▅▆▇█", "_.-=+*#"
#: The width of a table that has all its columns in full, the characters of its sparklines, and those in a narrower one.
FULL, LONG, SHORT = 110, 20, 10
#: The width of a table without a terminal to fit into.
WIDE = 200
COLUMNS = ("run", "step", "state", "training loss", "rate", "last validation")
#: The columns that are cut where there is no room, the share of the room of the first of them, and the least of both.
CUT, SHARE, LEAST = ("run", "last validation"), 0.6, 8
COLOURS = {"running": "green", "did not converge": "red", "silent": "yellow"}


def show(directory: Path, *, once: bool, every: float) -> None:
    """Draws the runs in a directory: once, or until Ctrl-C; one that is a run itself, until it ends."""
    console = Console()
    watched: dict[Path, Watched] = {}
    if once or not console.is_terminal:
        width = console.width if console.is_terminal else WIDE
        found = states(directory, watched)
        Console(width=width).print(table(directory, found, width, plain=console.options.ascii_only))
        return
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                found = states(directory, watched)
                drawn = table(
                    directory, found, console.width, plain=console.options.ascii_only, most=max(console.height - 4, 1)
                )
                live.update(drawn, refresh=True)
                if list(found) == [directory] and found[directory].ended:
                    return
                time.sleep(every)
    except KeyboardInterrupt:
        return


def states(directory: Path, watched: dict[Path, Watched]) -> dict[Path, State]:
    """The state of each run in a directory, runs that go on first; ``watched`` keeps what was read."""
    now = time.time()
    found = {run: watched.setdefault(run, Watched(run)).state(now) for run in runs_in(directory)}
    return dict(sorted(found.items(), key=lambda pair: pair[1].ended))


def table(
    directory: Path, found: Mapping[Path, State], width: int, *, plain: bool = False, most: int | None = None
) -> Table:
    """The runs as a table of a width, ``most`` of them at most."""
    runs = list(found)[:most]
    above = Path(os.path.commonpath([run.parent for run in found])) if found else directory
    names = [run.name if run == directory else run.relative_to(above).as_posix() for run in runs]
    cells = [[name, *_cells(found[run], plain, width)] for name, run in zip(names, runs, strict=True)]
    running, ended = (sum(s.status == "running" for s in found.values()), sum(s.ended for s in found.values()))
    hidden = f"; {len(found) - len(runs)} not shown" if len(runs) < len(found) else ""
    caption = f"{len(found)} run{'s' if len(found) != 1 else ''}: {running} running, {ended} ended{hidden}"
    lines = Table(box=None, pad_edge=False, caption=caption, caption_justify="left")
    for name, room in zip(COLUMNS, _widths([list(COLUMNS), *cells], width), strict=True):
        lines.add_column(name, width=room, no_wrap=True, justify="right" if name in ("step", "rate") else "left")
    for run, line in zip(runs, cells, strict=True):
        colour = COLOURS.get(found[run].status, "")
        lines.add_row(
            *(_text(cell, colour if name == "state" else "") for name, cell in zip(COLUMNS, line, strict=True))
        )
    return lines


def _widths(lines: Sequence[Sequence[str]], width: int) -> list[int]:
    """The widths of the columns: what they need; if that is too much, two of them get the room that the rest leaves."""
    needed = [max(map(len, column)) for column in zip(*lines, strict=True)]
    first, second = (COLUMNS.index(name) for name in CUT)
    blanks = 2 * (len(needed) - 1)
    room = width - blanks - sum(needed) + needed[first] + needed[second]
    if needed[first] + needed[second] > room:
        of_first = max(room - needed[second], int(SHARE * room), LEAST)
        needed[first] = min(needed[first], of_first)
        needed[second] = max(min(needed[second], room - needed[first]), LEAST)
    return needed


def _text(words: str, style: str) -> Text:
    """Words that come from files, without characters that would steer the terminal."""
    return Text("".join(c if c.isprintable() else "?" for c in words), style)


def _cells(state: State, plain: bool, width: int) -> list[str]:
    """A run in words: its columns but the name."""
    losses = [loss for _, loss in state.losses]
    curve = sparkline(state.losses, PLAIN if plain else HEIGHTS, LONG if width >= FULL else SHORT)
    found = ", ".join(
        f"{f'{value:.3f}' if isinstance(value, float) else value} {name.replace('_', ' ')}"
        for name, value in state.validation.items()
    )
    return [
        f"{state.step:,}",
        _status(state),
        f"{curve} {losses[-1]:.3f}" if losses else "",
        "" if state.rate is None else f"{state.rate:.3g}",
        str(state.result.get("reason", "")) if state.status == "did not converge" else found,
    ]


def _status(state: State) -> str:
    """How far a run is, and the time that is left, or that it took."""
    share = f"{100 * min(state.step / state.total, 1):.0f} %, " if state.total else ""
    if state.status == "running":
        return f"{share}running" if state.left is None else f"{share}{duration(state.left)} left"
    if state.status == "silent":
        return f"{share}silent for {duration(state.age)}"
    return f"finished, {duration(state.seconds)}" if state.status == "finished" else state.status


def sparkline(losses: Sequence[tuple[int, float]], heights: str = HEIGHTS, width: int = LONG) -> str:
    """A curve as a row of characters: the steps so far in equal parts, the mean of each as a height.

    A part without a line of metrics repeats the one before it.
    """
    if not losses:
        return ""
    first, last = losses[0][0], losses[-1][0]
    parts: list[list[float]] = [[] for _ in range(width)]
    for step, loss in losses:
        share = (step - first) / (last - first) if last > first else 0.0
        parts[min(max(int(share * width), 0), width - 1)].append(loss)
    means = [sum(part) / len(part) if part else None for part in parts]
    known = [mean for mean in means if mean is not None]
    low, span = min(known), max(known) - min(known)
    drawn, height = [], 0
    for mean in means:
        if mean is not None:
            height = round((mean - low) / span * (len(heights) - 1)) if span else 0
        drawn.append(heights[height])
    return "".join(drawn)
