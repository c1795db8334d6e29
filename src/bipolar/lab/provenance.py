"""The origin of a result: commit, machine and versions."""

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
    """One line about the machine, with all that a measurement depends on."""
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
    """The commit of the running source tree, marked if it has changes; None outside of a repository."""

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
            return None  # installed inside another project's repository
        changed = git("status", "--porcelain", "--untracked-files=no", ":/src")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def provenance() -> dict[str, Any]:
    """The origin that every result carries, so that it can be repeated."""
    versions = {"bipolar": bipolar.__version__, "python": platform.python_version(), "torch": torch.__version__}
    for name in ("lightning-fabric", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"commit": commit(), "machine": machine(), "versions": versions}
