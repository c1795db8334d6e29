"""Executors: many processes find the results of one, and a process that is killed costs nothing but time."""

import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bipolar.lab.reproduce import executors
from bipolar.lab.reproduce.executors import check_address, in_processes, on_ray
from bipolar.lab.reproduce.trials import trial_of
from tests.helpers.items import TINY, reproduce, tiny
from tests.helpers.paths import ROOT
from tests.helpers.processes import command_of, descendants, has_metrics, one_is_killed, running, wait_until

pytestmark = pytest.mark.long
ITEM = tiny(steps=200)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of one process."""
    results: dict[str, Any] = reproduce(ITEM, tmp_path_factory.mktemp("alone"))["results"]
    return results


def any_has_metrics(out: Path) -> bool:
    return any(has_metrics(run) for run in out.glob("runs/*"))


def test_two_workers_and_one_that_is_killed(tmp_path: Path, expected: dict[str, Any]) -> None:
    with one_is_killed(lambda: any_has_metrics(tmp_path), lambda: [p.pid for p in active_children() if p.pid]):
        together = reproduce(ITEM, tmp_path, in_processes(2))
    assert together["results"] == pytest.approx(expected)


def test_the_process_that_workers_are_forked_from_is_killed(
    tmp_path: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its time to die: the first tries to start another find it still there."""
    submit, died, waited = ProcessPoolExecutor.submit, list[bool](), list[float]()

    def later_with_a_server(self: ProcessPoolExecutor, *args: Any) -> Any:
        if len(died) < 3:
            died.append(True)
            raise EOFError("unexpected EOF")  # what multiprocessing says then
        return submit(self, *args)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", later_with_a_server)
    monkeypatch.setattr(executors, "time", SimpleNamespace(sleep=waited.append))
    assert reproduce(ITEM, tmp_path, in_processes(2))["results"] == pytest.approx(expected)
    assert 0 < waited[0] < waited[1] < waited[2]


def test_files_of_a_worker_take_the_place_of_parts_of_a_stopped_run(tmp_path: Path) -> None:
    trial = trial_of(TINY, tmp_path)
    trial.directory.mkdir()
    for name in ("metrics.jsonl", "result.json"):
        (trial.directory / name).write_bytes(b"{half a")
    files = {"result.json": b"{}", "metrics.jsonl": b"all of it", "config.json": b'{"config": {"seed": 1}}'}
    executors._keep(files, trial)
    assert {path.name: path.read_bytes() for path in trial.directory.iterdir()} == files
    executors._keep(dict.fromkeys(files, b"another"), trial)  # it ran
    assert {path.name: path.read_bytes() for path in trial.directory.iterdir()} == files


def test_ray_with_two_workers_and_one_that_is_killed(tmp_path: Path, expected: dict[str, Any]) -> None:
    ray = pytest.importorskip("ray")

    def workers() -> list[int]:
        return [pid for pid in descendants(os.getpid()) if "ray::_files_of" in command_of(pid)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        try:
            check_address(ray.get_runtime_context().gcs_address)
            with one_is_killed(lambda: any_has_metrics(tmp_path), workers):
                together = reproduce(ITEM, tmp_path, on_ray(None))
        finally:
            ray.shutdown()
    assert together["results"] == pytest.approx(expected)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_parent_is_killed_and_called_again(workers: int, tmp_path: Path, expected: dict[str, Any]) -> None:
    """Its workers end with it."""
    command = [sys.executable, "-m", "tests.helpers.command_with_tiny", "reproduce", "tiny", "--out", str(tmp_path)]
    with running([*command, "--workers", str(workers)], cwd=ROOT) as process:
        wait_until(lambda: any_has_metrics(tmp_path), process=process)
        children = descendants(process.pid)
        process.kill()
    assert bool(children) == (workers > 1)
    wait_until(lambda: not any("multiprocessing" in command_of(pid) for pid in children), seconds=20)
    results = reproduce(ITEM, tmp_path)["results"]
    assert results == (expected if workers == 1 else pytest.approx(expected))  # workers have other numbers of threads
