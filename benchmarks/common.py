"""Timing side by side, tables, and their place in the README, for all benchmarks."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bipolar._tools.files import replacing
from bipolar.lab.provenance import machine

__all__ = ["best_of", "in_fresh_process", "machine", "markdown_table", "peak", "record", "timed"]

README = Path(__file__).with_name("README.md")


def best_of(runs: Sequence[Callable[[], tuple[float, ...]]], rounds: int, at_least: float) -> list[tuple[float, ...]]:
    """The times of the fastest round of each run; the runs take turns, so that a noisy moment hits them alike.

    A run returns the seconds of its parts; the round with the smallest sum counts. Rounds continue after the first
    ``rounds`` until ``at_least`` seconds have passed: a few short runs could all fall into one noisy moment.
    """
    best = [run() for run in runs]  # slow, with compilation; the minimum leaves it out
    start, done = time.perf_counter(), 0
    while done < rounds or time.perf_counter() - start < at_least:
        best = [min(old, run(), key=sum) for old, run in zip(best, runs, strict=True)]
        done += 1
    return best


def timed(
    run: Callable[[], object], repeats: int = 1, clock: Callable[[], float] = time.perf_counter
) -> Callable[[], tuple[float]]:
    """A run for :func:`best_of`: the average seconds of ``repeats`` calls."""

    def once() -> tuple[float]:
        start = clock()
        for _ in range(repeats):
            run()
        return ((clock() - start) / repeats,)

    return once


def in_fresh_process(function: Callable[..., float], *arguments: object) -> float:
    """The result of a function in a process of its own, for values such as peak memory that earlier use would hide."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def peak() -> float:
    """The peak resident memory of this process so far, in MiB; from /proc, because ru_maxrss includes the parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that reads well both as text and as Markdown; columns after the first two are numbers."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    align = [str.ljust if i < 2 else str.rjust for i in range(len(widths))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(pad(cell, width) for pad, cell, width in zip(align, cells, widths, strict=True)) + " |"

    rule = ["-" * width if i < 2 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def record(section: str, text: str) -> None:
    """Replaces the section of ``benchmarks/README.md`` between the marks that carry its name."""
    start, end = f"<!-- {section}: start -->", f"<!-- {section}: end -->"
    before, rest = README.read_text(encoding="utf-8").split(start)
    after = rest.split(end)[1]
    with replacing(README) as part:
        part.write_text(f"{before}{start}\n{text}\n{end}{after}", encoding="utf-8")
