"""Crashes: runs killed by ``kill -9``, resumed by the same command, and compared bit for bit with undisturbed ones."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from bipolar.lab.training.checkpoints import Checkpoints
from bipolar.lab.training.journal import read_metrics
from tests.helpers.paths import ROOT
from tests.helpers.processes import command_of, descendants, wait_until
from torture.commands import Accident, Recipe, assert_safe, assert_same, run, undisturbed, weights_of

#: How often a run is killed at most.
KILLS = 3


def a_killed_run(random: Random, directory: Path) -> str:
    """``bipolar train``, killed up to three times at random moments."""
    recipe = Recipe.draw(random)
    expected, operations = undisturbed(recipe, directory)
    out, killed = directory / "run", 0
    for _ in range(random.randint(1, KILLS)):
        done = run(recipe.arguments(out), out, Accident.draw(random, "kill", operations))
        killed += done.code == -signal.SIGKILL
        checkpoints = Checkpoints(out / "checkpoints")
        assert not checkpoints.has_best or checkpoints.best(), "the best checkpoint is broken"
        assert done.code in (0, -signal.SIGKILL), f"exit code {done.code}: {done.said[-500:]}"
        assert_safe(out, done)
    done = run(recipe.arguments(out), out)
    assert done.code == 0, f"does not go on, exit code {done.code}: {done.said[-500:]}"
    assert_same(out, expected)
    return f"train {recipe.task}, killed {killed} times: the same"


def a_killed_reproduction(random: Random, directory: Path) -> str:
    """``bipolar reproduce --workers 2``, itself or one of its workers killed up to three times."""
    reference = directory.parent / "reproduced"
    if not (reference / "tiny.json").exists():
        began = time.monotonic()
        _reproduce(reference, None, 0.0, "")
        (reference / "seconds").write_text(str(time.monotonic() - began), encoding="utf-8")
    seconds, out = float((reference / "seconds").read_text(encoding="utf-8")), directory / "out"
    killed = 0
    for _ in range(random.randint(1, KILLS)):
        killed += _reproduce(out, random, seconds, random.choice(("command", "worker")))
    _reproduce(out, None, 0.0, "")
    expected, got = _results(reference), _results(out)
    for part, value in expected.items():
        assert got[part] == value, f"{part} differ from those of an undisturbed reproduction"
    return f"reproduce --workers 2, killed {killed} times: the same"


def _reproduce(out: Path, random: Random | None, seconds: float, victim: str) -> bool:
    """Runs a tiny reproduction; with ``random``, kills the victim some time after the start. Returns whether it did."""
    command = [sys.executable, "-m", "tests.helpers.command_with_tiny", "reproduce", "tiny", "--out", str(out)]
    threads = str(max(1, (os.cpu_count() or 1) // 2))  # those of a worker: else the last bits differ
    environment = os.environ | {"OMP_NUM_THREADS": threads}
    with subprocess.Popen(
        [*command, "--workers", "2"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            if random is not None:
                return _kill_later(process, random.uniform(0.2, 1.0) * seconds, victim)
            said = process.communicate(timeout=600)[0]
        finally:
            process.kill()
    assert process.returncode == 0, f"exit code {process.returncode}: {said.decode(errors='replace')[-500:]}"
    return False


def _kill_later(process: "subprocess.Popen[bytes]", seconds: float, victim: str) -> bool:
    try:
        process.communicate(timeout=seconds)
        return False  # it was faster
    except subprocess.TimeoutExpired:
        pass
    children = descendants(process.pid)
    workers = [pid for pid in children if "multiprocessing.forkserver" in command_of(pid)]
    if victim == "worker" and workers:
        os.kill(workers[-1], signal.SIGKILL)
        said = process.communicate(timeout=600)[0]
        assert process.returncode == 0, f"exit code {process.returncode}: {said.decode(errors='replace')[-500:]}"
        return True
    process.kill()
    process.wait()
    wait_until(lambda: not any("forkserver" in command_of(pid) for pid in children), 60)
    return True


def _results(out: Path) -> dict[str, Any]:
    record = json.loads((out / "tiny.json").read_text(encoding="utf-8"))
    runs = sorted((out / "runs").iterdir())
    metrics = {
        path.name: [{k: v for k, v in row.items() if k != "seconds"} for row in read_metrics(path)] for path in runs
    }
    return {"results": record["results"], "metrics": metrics, "weights": {run.name: weights_of(run) for run in runs}}
