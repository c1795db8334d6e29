"""Where a figure comes from: machine, versions, commit."""

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import bipolar


def machine() -> str:
    """One line that names the machine, as far as a measurement depends on it."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())
        model = found[1].strip() if found else model
    return (
        f"{model}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}, "
        f"{torch.get_num_threads()} threads, Python {platform.python_version()}, torch {torch.__version__}"
    )


def commit() -> str | None:
    """The commit of the source tree that runs, marked if it has been changed; None outside of one."""

    def git(*arguments: str) -> str:
        return subprocess.run(  # noqa: S603
            ("git", *arguments),  # noqa: S607
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    try:
        if "src/bipolar/lab" not in git("ls-files", "--full-name", Path(__file__).name):
            return None  # installed somewhere within another project
        changed = git("status", "--porcelain", "--untracked-files=no", ":/src")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def provenance() -> dict[str, Any]:
    """What a result carries along so that it can be placed and repeated."""
    versions = {"bipolar": bipolar.__version__, "python": platform.python_version(), "torch": torch.__version__}
    for name in ("lightning-fabric", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"commit": commit(), "machine": machine(), "versions": versions}
