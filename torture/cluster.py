"""A Ray cluster: a node dies in the middle of a reproduction; and an address where there is none."""

import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from random import Random

from tests.helpers.items import reproduce, tiny
from tests.helpers.paths import ROOT
from tests.helpers.processes import has_metrics
from torture.trials import NotTriedError

#: Seconds within which a command has to say that an address is wrong, once it has imported what it needs.
PATIENCE = 10.0


def a_cluster(random: Random, directory: Path) -> str:
    try:
        import ray  # noqa: F401
    except ModuleNotFoundError:
        raise NotTriedError("it takes ray: pip install 'bipolar[ray]'") from None
    return _wrong_address(random, directory) if random.random() < 0.5 else _dying_node(directory)


def _wrong_address(random: Random, directory: Path) -> str:
    """``--ray-address`` with nobody there: the command says so within ten seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = random.choice((f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "nowhere.invalid:6379", "127.0.0.1:x"))
    command = [
        sys.executable,
        "-m",
        "tests.helpers.command_with_tiny",
        "reproduce",
        "tiny",
        "--out",
        str(directory / "out"),
    ]
    idle = _seconds([*command, "--list"])[0]  # what starting takes on this machine, now
    seconds, code, said = _seconds([*command, "--ray-address", address])
    assert code not in (0, None), f"{address}: exit code {code}, {said[-300:]}"
    assert "--ray-address" in said, f"{address}: {said[-500:]}"
    assert "Traceback" not in said, f"{address}: a traceback, {said[-500:]}"
    assert seconds < idle + PATIENCE, f"{address}: said so after {seconds:.0f} s, {idle:.0f} s of them to start"
    return "wrong address: refused in time"


def _seconds(command: list[str]) -> tuple[float, int | None, str]:
    began = time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired as error:
        return time.monotonic() - began, None, str(error)
    return time.monotonic() - began, done.returncode, done.stdout + done.stderr


def _dying_node(directory: Path) -> str:
    """Two nodes on this machine, one of which dies: the other does the rest."""
    import ray
    from ray.cluster_utils import Cluster

    from bipolar.lab.reproduce.executors import on_ray

    item = tiny(steps=200)
    expected = reproduce(item, directory / "alone")["results"]
    warnings.simplefilter("ignore")  # of Ray's own
    cluster, out = Cluster(), directory / "together"
    ended, killed = threading.Event(), threading.Event()
    try:
        try:
            cluster.add_node(num_cpus=1, include_dashboard=False)
            node = cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
        except Exception as error:  # Ray's own deadlines, on a crowded machine
            raise NotTriedError(f"Ray does not start two nodes ({type(error).__name__})") from None

        def kill() -> None:
            while not ended.wait(0.05):
                if len([run for run in out.glob("runs/*") if has_metrics(run)]) == 2:  # one on each node
                    cluster.remove_node(node, allow_graceful=False)
                    killed.set()
                    return

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        together = reproduce(item, out, on_ray(cluster.address))["results"]
        ended.set()
        thread.join()
    finally:
        ended.set()
        if ray.is_initialized():
            ray.shutdown()
        cluster.shutdown()
    for name, value in expected.items():
        assert abs(together[name] - value) < 1e-6, f"{name}: {together[name]}, not {value}"
    if not killed.is_set():
        raise NotTriedError("all runs ended before a node could die")
    return "node died: the other finished"
