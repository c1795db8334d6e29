"""Real processes: started, waited for with a deadline, killed, and never left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.distributed as dist

from bipolar.lab.reproduce.executors import IMPORTED

#: Seconds between two looks at something that another process does.
INTERVAL = 0.02


def bipolar_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bipolar.lab", *arguments]


@contextlib.contextmanager
def running(
    arguments: Sequence[str], output: int = subprocess.DEVNULL, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block, whatever happens in it. It has as many threads as this one."""
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # else the last bits differ
    with subprocess.Popen(arguments, stdout=output, stderr=output, cwd=cwd, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def in_two_ranks(work: Callable[[int, Path], None], directory: Path, seconds: float = 240) -> None:
    """Calls ``work(rank, directory)`` in two processes of one group, each with random numbers of its own.

    Where processes can be forked, from the one that forks the workers of ``bipolar reproduce``: it has imported torch.
    """
    context = get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload(IMPORTED)
    processes = [context.Process(target=_of_a_group, args=(work, rank, directory)) for rank in range(2)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(seconds)
        assert [process.exitcode for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()


def _of_a_group(work: Callable[[int, Path], None], rank: int, directory: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    torch.manual_seed(rank)
    work(rank, directory)
    dist.destroy_process_group()


def wait_until(
    condition: Callable[[], bool], seconds: float = 240, process: subprocess.Popen[bytes] | None = None
) -> None:
    """Waits for a condition, which has to come true in time, and before ``process`` ends."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, "the process has ended"
        assert time.monotonic() < deadline, f"waited for {seconds} s"
        time.sleep(INTERVAL)


def has_metrics(run: Path, size: int = 1) -> bool:
    """Whether a run has written so many bytes of metrics."""
    path = run / "metrics.jsonl"
    return path.exists() and path.stat().st_size >= size


@contextlib.contextmanager
def one_is_killed(when: Callable[[], bool], workers: Callable[[], list[int]]) -> Iterator[None]:
    """Kills one worker as soon as ``when`` is true; asserts that this happened before the block ended."""
    ended, killed = threading.Event(), list[int]()

    def kill_one() -> None:
        while not killed and not ended.wait(INTERVAL):
            if when():
                for pid in workers()[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    thread = threading.Thread(target=kill_one, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert killed


def descendants(of: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, left = list[int](), [of]
    while left:
        left += (new := children.get(left.pop(), []))
        found += new
    return found


def command_of(pid: int) -> str:
    """The command line of a process, empty if there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""
