"""Trials, each told by a seed and a number alone, run one after another in a process that may crash or hang."""

import contextlib
import multiprocessing
import os
import random
import re
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

#: Runs a trial with random numbers of its own in an empty directory, and returns its outcome in a few words.
Trial = Callable[[random.Random, Path], str]


#: Seconds that a process may take to start, and its first word.
START, READY = 300.0, "ready"
#: How the outcome of a trial begins that this machine does not let happen.
NOT_TRIED = "not tried"


class NotTriedError(Exception):
    """This machine does not let the trial happen; the message says why."""


@dataclass(frozen=True)
class Piece:
    """A kind of trials."""

    name: str
    #: a sentence for the summary: what is tried, and what has to come out
    about: str
    trial: Trial
    #: the number of trials, unless time runs out, and their share of the time
    count: int
    share: float
    #: seconds after which a trial hangs
    limit: float


@dataclass(frozen=True)
class Failure:
    """A trial that failed: an error, a crash or a hang."""

    number: int
    #: the error in a line, and all of it
    summary: str
    details: str

    @property
    def kind(self) -> str:
        """The summary without its numbers: failures of one kind probably have one cause."""
        return re.sub(r"\d[\d.e+-]*", "#", self.summary)


@dataclass
class Tally:
    """The trials of a piece so far."""

    piece: Piece
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def tried(self) -> int:
        """The trials that happened."""
        left_out = sum(count for outcome, count in self.outcomes.items() if outcome.startswith(NOT_TRIED))
        return sum(self.outcomes.values()) - left_out + len(self.failures)

    def by_kind(self) -> dict[str, list[Failure]]:
        found: dict[str, list[Failure]] = {}
        for failure in self.failures:
            found.setdefault(failure.kind, []).append(failure)
        return found


def random_of(seed: int, piece: str, number: int) -> random.Random:
    """The random numbers of a trial, the same on every machine."""
    return random.Random(f"{seed} {piece} {number}")  # noqa: S311 - no secrets


def repeat(piece: Piece, seed: int, number: int, directory: Path) -> str:
    """Runs one trial in this process; torch's random numbers follow from the trial's, too."""
    import torch

    drawn = random_of(seed, piece.name, number)
    torch.manual_seed(drawn.getrandbits(62))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return piece.trial(drawn, directory)


def run(
    piece: Piece, seed: int, numbers: Sequence[int], seconds: float, say: Callable[[Tally], None] = lambda tally: None
) -> Tally:
    """Runs trials until the time is over; a crash or a hang costs the process, and the next trial gets a new one."""
    tally, began = Tally(piece), time.monotonic()
    left = list(numbers)
    with tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as scratch:
        while left and time.monotonic() - began < seconds:
            with _worker(piece, seed, left, Path(scratch)) as answers:
                while left and time.monotonic() - began < seconds:
                    number, alive = left.pop(0), _await(answers, piece.limit, tally)
                    tally.seconds = time.monotonic() - began
                    say(tally)
                    if not alive:
                        tally.failures.append(_death(number, piece, answers))
                        break
    tally.seconds = time.monotonic() - began
    return tally


def _await(answers: Connection, limit: float, tally: Tally) -> bool:
    """Waits for the outcome of a trial; returns whether its process still lives."""
    with contextlib.suppress(EOFError, OSError):
        if answers.poll(limit):
            outcome = answers.recv()
            if isinstance(outcome, Failure):
                tally.failures.append(outcome)
            else:
                tally.outcomes[outcome] += 1
            return True
    return False


def _death(number: int, piece: Piece, answers: Connection) -> Failure:
    hangs = False
    with contextlib.suppress(EOFError, OSError):
        hangs = not answers.poll(0)
    text = f"hangs: no answer within {piece.limit:.0f} s" if hangs else "crash: the process died"
    return Failure(number, text, text)


@contextlib.contextmanager
def _worker(piece: Piece, seed: int, numbers: Sequence[int], scratch: Path) -> Iterator[Connection]:
    """A process that runs trials and sends their outcomes; it ends with the block, and all that it started with it.

    The block begins when it has imported what it needs: that does not count as time of a trial.
    """
    here, there = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(piece, seed, numbers, scratch, there))
    process.start()
    there.close()
    try:
        if not here.poll(START) or here.recv() != READY:
            raise RuntimeError(f"{piece.name}: its process does not start")
        yield here
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.kill()
        process.join()


def _work(piece: Piece, seed: int, numbers: Sequence[int], scratch: Path, answers: Connection) -> None:
    import torch  # noqa: F401 - takes seconds

    os.setsid()  # a process group of its own, to be killed with all that it starts
    answers.send(READY)
    for number in numbers:
        directory = scratch / f"{piece.name}-{number}"
        directory.mkdir()
        try:
            answers.send(repeat(piece, seed, number, directory))
        except NotTriedError as reason:
            answers.send(f"{NOT_TRIED}: {reason}")
        except Exception as error:
            answers.send(Failure(number, _in_a_line(error), traceback.format_exc()))
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _in_a_line(error: Exception) -> str:
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"[:300]
