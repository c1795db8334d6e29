"""The ``bipolar`` command in processes of their own, which something happens to at a chosen file operation.

The moment is counted in operations on the files of the run, not in seconds: so a trial can be repeated, and between two
of them a run has nothing to lose.
"""

import ctypes
import json
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any, Literal

import torch

from bipolar.lab.reproduce.executors import IMPORTED
from bipolar.lab.training.checkpoints import Checkpoints
from bipolar.lab.training.journal import read_metrics
from bipolar.models._hub import WEIGHTS
from bipolar.models._load import OF_RUN
from tests.helpers.text_runs import TEXT

Kind = Literal["kill", "terminate", "terminate twice", "read-only", "clock"]
#: What all commands import; the server that they are forked from does it once for all.
PRELOADED = ["bipolar.lab.cli", *IMPORTED, "torture.commands"]
#: The events of Python that change files, or are about to.
EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate")
#: Seconds that a command may take, on a crowded machine.
PATIENCE = 120.0
#: The most milliseconds between a file operation and what happens: long enough to meet it half done.
DELAY = 20


@dataclass(frozen=True)
class Accident:
    """Something that happens to a process: at the n-th operation on files under a directory, or a moment later."""

    kind: Kind
    number: int
    milliseconds: int = 0

    @classmethod
    def draw(cls, random: Random, kind: Kind, operations: int) -> "Accident":
        return cls(kind, random.randrange(1, operations + 1), random.choice((0, random.randrange(DELAY))))


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code, negative for a signal, and what it said."""

    code: int
    said: str
    #: the operations on files under its directory
    operations: int
    #: the step of its last checkpoint that was complete, 0 without one
    saved: int = 0


def run(arguments: Sequence[str], out: Path, accident: Accident | None = None, logs: Path | None = None) -> Ended:
    """Runs a command to its end, with or without an accident."""
    return ended(start(arguments, out, accident, logs))


def start(
    arguments: Sequence[str], out: Path, accident: Accident | None = None, logs: Path | None = None
) -> BaseProcess:
    """Starts a command, whose run is in ``out``; what it says is written beside that, or in ``logs``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    log = (logs or out.parent) / f"{out.name}-{time.monotonic_ns()}"
    process = context.Process(target=_command, args=(list(arguments), out, log, accident), name=str(log))
    process.start()
    return process


def ended(process: BaseProcess) -> Ended:
    """Waits for the end of a command."""
    process.join(PATIENCE)
    hangs = process.exitcode is None
    if hangs:
        process.kill()
        process.join()
    said, count, saved = (_read(Path(f"{process.name}.{kind}")) for kind in ("said", "count", "saved"))
    assert not hangs, f"the command hangs: {said[-500:]}"
    return Ended(process.exitcode or 0, said, int(count or 0), max(map(int, saved.split()), default=0))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _command(arguments: list[str], out: Path, log: Path, accident: Accident | None) -> None:
    """The process of a command: what it says goes to a file, the accident happens on its way."""
    said = os.open(f"{log}.said", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    operations = _watch(out, accident, os.open(f"{log}.saved", os.O_WRONLY | os.O_CREAT))
    torch.set_num_threads(1)
    from bipolar.lab.cli import main

    try:
        main(arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        Path(f"{log}.count").write_text(str(operations()), encoding="utf-8")


def _watch(out: Path, accident: Accident | None, saved: int) -> Callable[[], int]:
    """Counts operations on files under a directory, and lets the accident happen; returns how many there were.

    The steps of checkpoints that are complete go to the file ``saved``: Python tells of a file that is about to get its
    name, so that the operation after it finds it there.
    """
    count, place = 0, str(out)
    renamed: Path | None = None
    if accident is not None and accident.kind == "read-only":
        _obey_permissions()

    def look(event: str, given: tuple[Any, ...]) -> None:
        nonlocal count, renamed
        if event in EVENTS and str(given[0]).startswith(place):
            count += 1
            if renamed is not None and renamed.exists():  # a signal may have come in between
                os.write(saved, f"{int(renamed.stem.removeprefix('step-'))}\n".encode())
            target = Path(str(given[1])) if event == "os.rename" else None
            renamed = target if target is not None and re.fullmatch(r"step-\d+\.pt", target.name) else None
            if accident is not None and count == accident.number:
                if accident.milliseconds:
                    threading.Timer(accident.milliseconds / 1000, _happen, (accident.kind, out)).start()
                else:
                    _happen(accident.kind, out)

    sys.addaudithook(look)
    return lambda: count


def _happen(kind: Kind, out: Path) -> None:
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
    elif kind == "terminate twice":
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    elif kind == "read-only":
        make_writable(out, False)
    else:
        now = time.time
        time.time = lambda: now() - 3600


def make_writable(out: Path, writable: bool) -> None:
    for path in (out, *(path for path in out.rglob("*") if path.is_dir())):
        path.chmod(0o755 if writable else 0o555)


def _obey_permissions() -> None:
    """Gives up root's right to write where permissions forbid it."""
    if os.geteuid():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    if libc.capget(header, data):
        raise OSError(ctypes.get_errno(), "capget")
    for place in (0, 1, 2):  # effective, permitted, inheritable
        data[place] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


# Runs that take seconds


@dataclass(frozen=True)
class Recipe:
    """A short run."""

    task: Literal["text", "images"]
    checkpoint_every: int
    averages: bool

    @classmethod
    def draw(cls, random: Random) -> "Recipe":
        return cls(random.choice(("text", "images")), random.choice((1, 3, 7)), random.random() < 0.3)

    @property
    def name(self) -> str:
        return f"{self.task}-{self.checkpoint_every}-{self.averages}"

    def arguments(self, out: Path) -> list[str]:
        corpus = out.parent / "corpus.txt"
        if not corpus.exists():
            corpus.write_text(TEXT, encoding="utf-8")
        of_text = (
            *("--data", str(corpus), "--batch-size", "4", "--window", "10", "--lr", "5e-3", "--validate-every", "1"),
            *("--model.num-layers", "4", "--model.hidden-size", "8", "--model.dropout", "0.1"),
            *("--train-share", "0.02", "--max-valid-windows", "2", "--max-steps", "17", "--log-every", "2"),
        )
        of_images = (
            *("--data", "digits", "--model.network", "conv", "--model.widen-factor", "1", "--batch-size", "16"),
            *("--train-images", "80", "--test-images", "20", "--max-steps", "13", "--log-every", "2"),
        )
        averaged = ("--recipe", "fast", "--average", "0.3") if self.averages else ()
        given = of_text if self.task == "text" else of_images
        every = ("--checkpoint-every", str(self.checkpoint_every), "--accelerator", "cpu")
        return ["train", self.task, *given, *averaged, *every, "--out", str(out)]


def undisturbed(recipe: Recipe, directory: Path) -> tuple[dict[str, Any], int]:
    """What a run of a recipe finds if nothing happens to it, and how many operations on files it takes; run once."""
    out = directory.parent / "undisturbed" / recipe.name / "run"
    if not (out.parent / "operations").exists():
        out.parent.mkdir(parents=True)
        done = run(recipe.arguments(out), out)
        if done.code:
            raise RuntimeError(f"without an accident: exit code {done.code}, {done.said[-500:]}")
        (out.parent / "operations").write_text(str(done.operations), encoding="utf-8")
    return found(out), int((out.parent / "operations").read_text(encoding="utf-8"))


def found(out: Path) -> dict[str, Any]:
    """All that a run has found, without times: metrics, result, and the bits of its weights and of its model."""
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    return {
        "metrics": [{k: v for k, v in row.items() if k != "seconds"} for row in read_metrics(out)],
        "result": {k: v for k, v in result.items() if k != "seconds"},
        "weights": weights_of(out),
        "model": (out / OF_RUN / WEIGHTS).read_bytes(),
    }


def weights_of(out: Path) -> dict[str, bytes]:
    """The bits of the weights in the last checkpoint of a run."""
    last: dict[str, torch.Tensor] = torch.load(_last_of(out), weights_only=True)["model"]
    return {name: value.contiguous().flatten().view(torch.uint8).numpy().tobytes() for name, value in last.items()}


def _last_of(out: Path) -> Path:
    return sorted((out / "checkpoints").glob("step-*.pt"))[-1]


def assert_safe(out: Path, done: Ended) -> None:
    """The last checkpoint that was complete, or a later one, is still there and whole."""
    last = Checkpoints(out / "checkpoints").last() if done.saved else {"loop": {"step": 0}}
    assert last is not None, f"the checkpoint of step {done.saved} was complete, and is lost"
    step = last["loop"]["step"]
    assert step >= done.saved, f"the checkpoint of step {done.saved} was complete; the last one now is of step {step}"


def assert_same(out: Path, expected: dict[str, Any]) -> None:
    """The run has found what the undisturbed one has, bit for bit; and nothing half-written is left."""
    got = found(out)
    for part, value in expected.items():
        assert got[part] == value, f"{part} differ from those of an undisturbed run"
    left = [path.name for path in out.rglob("*.part")]
    assert not left, f"left behind: {left}"
