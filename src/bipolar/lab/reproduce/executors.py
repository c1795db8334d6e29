"""Executors of trials: one after another, in several processes, or on a Ray cluster."""

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias

import torch

from bipolar._tools.files import replacing
from bipolar.lab.errors import UsageError
from bipolar.lab.reproduce.display import Display
from bipolar.lab.reproduce.trials import Trial, run
from bipolar.lab.training.text import TextConfig

#: Runs trials, and calls back after each.
Executor: TypeAlias = Callable[[Sequence[Trial], Path | None, Callable[[Trial], None]], None]
#: What all worker processes import; where processes can be forked, once for all of them.
IMPORTED = [
    "bipolar.lab.training.text.runs",
    "bipolar.lab.training.images.runs",
    "lightning_fabric",
    "torch.utils.tensorboard",
]
#: How often a trial whose process died is resumed from its checkpoint.
RETRIES = 3
#: Seconds after the first death of a process, and so much more after each other one.
PAUSE = 0.1
#: Seconds that a Ray cluster has to answer, at one address and at all that its name stands for; and the head of its
#: answer, the settings that each side of HTTP/2 sends.
ANSWER, ALL_ANSWERS, SETTINGS = 4.0, 8.0, b"\0\0\0\4"
#: Seconds after which a connection to a cluster is slow.
SLOW = 5.0


def one_after_another(trials: Sequence[Trial], data_dir: Path | None, done: Callable[[Trial], None]) -> None:
    """Runs trials in this process."""
    with Display(trials, data_dir):
        for trial in trials:
            run(trial, data_dir, show=False)
            done(trial)


def in_processes(workers: int) -> Executor:
    """An executor with several processes of this machine, which share its cores; a single trial runs in this one."""

    def execute(trials: Sequence[Trial], data_dir: Path | None, done: Callable[[Trial], None]) -> None:
        if len(trials) < 2:
            one_after_another(trials, data_dir, done)
            return
        left, deaths = list(trials), 0
        with Display(trials, data_dir):
            while left:
                try:
                    _in_pool(left, min(workers, len(left)), data_dir, done)
                except BrokenProcessPool:  # a worker was killed; the trials that it broke off have their checkpoints
                    deaths += 1
                    if deaths > RETRIES * len(trials):
                        raise UsageError(
                            f"--workers {workers}: processes are killed again and again; try fewer"
                        ) from None
                    time.sleep(PAUSE * deaths)  # what they are forked from may be dying, and still be there
                left = [trial for trial in left if not trial.done]

    return execute


def _in_pool(trials: Sequence[Trial], workers: int, data_dir: Path | None, done: Callable[[Trial], None]) -> None:
    threads = max(1, (os.cpu_count() or 1) // workers)
    context = get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload(IMPORTED)
    with ProcessPoolExecutor(workers, context, _begin, (threads,)) as pool:
        futures: dict[Future[None], Trial]
        try:
            futures = {pool.submit(run, trial, data_dir, False): trial for trial in trials}
        except (EOFError, ConnectionError) as error:
            raise BrokenProcessPool("the process that workers are forked from was killed") from error
        waiting = set(futures)
        try:
            while waiting:
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                    done(futures[future])
        finally:
            pool.shutdown(cancel_futures=True)  # trials that have begun end, or were told to stop


def _begin(threads: int) -> None:
    """Starts a worker that ends with its parent, even a killed one. A trial may be killed at any moment."""
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with, args=(parent_process(),), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def on_ray(address: str | None) -> Executor:
    """An executor on a Ray cluster, a local one without an address: one task for each trial.

    A trial whose worker died is run again, from its checkpoint if the next worker sees the same files. All files of a
    run but its checkpoints come back to this machine. A run that starts from another needs a worker that sees that one.
    """
    if address is not None:
        check_address(address)
    try:
        import ray
    except ModuleNotFoundError:
        raise UsageError("--ray needs ray: pip install 'bipolar[ray]'") from None

    def execute(trials: Sequence[Trial], data_dir: Path | None, done: Callable[[Trial], None]) -> None:
        if not trials:
            return
        began = not ray.is_initialized()
        if began:
            try:
                with _said_if_slow(address):
                    ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise UsageError(f"--ray-address {address}: there is no cluster ({_first_line(error)})") from None
        try:
            gpus = 1 if ray.cluster_resources().get("GPU") else 0
            again: Any = [RuntimeError, OSError, MemoryError]  # no use if the configuration is wrong
            task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=again)(_files_of)
            with Display(trials, data_dir):
                waiting = {task.remote(_absolute(trial), data_dir and data_dir.absolute()): trial for trial in trials}
                while waiting:
                    (ready,), _ = ray.wait(list(waiting), num_returns=1)
                    trial = waiting.pop(ready)
                    _keep(ray.get(ready), trial)
                    done(trial)
        finally:
            if began:
                ray.shutdown()

    return execute


@contextlib.contextmanager
def _said_if_slow(address: str | None) -> Iterator[None]:
    """Says within ten seconds that a server does not answer as a Ray cluster does; a busy one may still."""
    text = (
        f"--ray-address {address}: something answers there, but not as a Ray cluster, or not yet. Ray goes on trying "
        "for some minutes; Ctrl-C ends it."
    )
    timer = threading.Timer(SLOW, print, (text,), {"file": sys.stderr, "flush": True})
    if address is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def check_address(address: str) -> None:
    """Refuses an address where no Ray cluster answers; Ray itself would try for minutes."""
    if address in ("auto", "local") or ("://" in address and not address.startswith("ray://")):
        return  # Ray finds it, or a provider does
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"--ray-address {address}: expected HOST:PORT, as ray start --head prints it, or auto")
    problem = _problem_in_time(host.strip("[]"), int(port))
    if problem:
        raise UsageError(
            f"--ray-address {address}: there is no cluster ({problem}); ray start --head starts one, and prints "
            "its address"
        )


def _problem_in_time(host: str, port: int) -> str:
    """The reason why no cluster is at an address, in time even if its name takes minutes to be looked up."""
    hosts = [host]
    if host in ("127.0.0.1", "localhost"):
        hosts.append(_own_address())  # which Ray puts in its place
    problems: list[str] = []
    found = threading.Event()

    def look() -> None:
        for each in hosts:
            problems.append(_problem_of(each, port))
            if not problems[-1]:
                break
        found.set()

    threading.Thread(target=look, daemon=True).start()
    found.wait(ALL_ANSWERS)
    return "" if "" in problems else problems[0] if problems else "timed out"


def _problem_of(host: str, port: int) -> str:
    """The reason why no server of gRPC, which Ray speaks, is at an address; empty if one is."""
    try:
        with socket.create_connection((host, port), ANSWER) as connection:
            if os.environ.get("RAY_USE_TLS", "0") == "1":
                return ""
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS + b"\0\0\0\0\0")
            return "" if connection.recv(4)[3:] == SETTINGS[3:] else "what answers there is not Ray"
    except UnicodeError:
        return "no machine has such a name"
    except OSError as error:
        return error.strerror or str(error)


def _own_address() -> str:
    """The address of this machine in its network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of documentation; nothing is sent
        except OSError:  # without a network
            return "127.0.0.1"
        own: str = probe.getsockname()[0]
        return own


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _absolute(trial: Trial) -> Trial:
    config = trial.config
    if isinstance(config, TextConfig) and config.start is not None:
        config = replace(config, start=str(Path(config.start).absolute()))
    return Trial(config, trial.directory.absolute())


def _files_of(trial: Trial, data_dir: Path | None) -> dict[str, bytes]:
    """Runs a trial, and returns its files except checkpoints and TensorBoard's."""
    run(trial, data_dir, show=False)
    paths = [path for path in trial.directory.rglob("*") if path.suffix in (".json", ".jsonl", ".safetensors")]
    return {str(path.relative_to(trial.directory)): path.read_bytes() for path in paths}


def _keep(files: dict[str, Any], trial: Trial) -> None:
    """Writes the files of a trial, the result last, because it marks the trial as done.

    Where it ran, its directory is the worker's own, on files that machines share. Elsewhere they take the place of
    those of a run that was stopped here.
    """
    if trial.ran:
        return
    for name, content in sorted(files.items(), key=lambda entry: entry[0] == "result.json"):
        with replacing(trial.directory / name) as part:
            part.write_bytes(content)
