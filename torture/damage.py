"""Damage that is not a crash: a full disk, a lost permission, a broken checkpoint, company, a clock, a signal.

The command says so in words or goes on; what was safe before stays; and when the cause is gone, the same command ends
with what an undisturbed one finds, bit for bit.
"""

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from torture.commands import (
    Accident,
    Ended,
    Recipe,
    assert_safe,
    assert_same,
    ended,
    make_writable,
    run,
    start,
    undisturbed,
)
from torture.trials import NotTriedError

BROKEN = "there is no checkpoint that is not broken"


def some_damage(random: Random, directory: Path) -> str:
    kind = random.choice(list(KINDS))
    recipe = Recipe.draw(random)
    expected, operations = undisturbed(recipe, directory)
    return f"{kind}: {KINDS[kind](random, directory, recipe, expected, operations)}"


def _goes_on(recipe: Recipe, out: Path, expected: dict[str, Any]) -> None:
    done = run(recipe.arguments(out), out)
    assert done.code == 0, f"does not go on, exit code {done.code}: {done.said[-500:]}"
    assert_same(out, expected)


def _assert_in_words(done: Ended) -> None:
    assert "Traceback" not in done.said, f"a traceback: {done.said[-700:]}"
    assert done.said.strip(), f"exit code {done.code} without a word"


def full_disk(random: Random, directory: Path, recipe: Recipe, expected: dict[str, Any], operations: int) -> str:
    """A disk that fills up, and is emptied again."""
    size = _size_of(directory, recipe)
    with _small_disk(directory / "disk", 3 * size) as disk:
        out, filler = disk / "run", disk / "filler"
        arguments = recipe.arguments(out)  # which writes the text
        filler.write_bytes(bytes(shutil.disk_usage(disk).free - random.randrange(size)))
        done = run(arguments, out, logs=directory)
        if done.code:
            _assert_in_words(done)
        assert_safe(out, done)
        filler.unlink()
        _goes_on(recipe, out, expected)
    return "in words, then the same" if done.code else "had space enough"


def _size_of(directory: Path, recipe: Recipe) -> int:
    whole = directory.parent / "undisturbed" / recipe.name
    return sum(path.stat().st_size for path in whole.rglob("*") if path.is_file()) + (1 << 18)


@contextmanager
def _small_disk(path: Path, size: int) -> Iterator[Path]:
    """A file system of so many bytes, in memory."""
    path.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if mount is None or subprocess.run([mount, *options], capture_output=True, check=False).returncode:
        raise NotTriedError("a small file system takes the right to mount one")
    try:
        yield path
    finally:
        subprocess.run([shutil.which("umount") or "umount", "--lazy", str(path)], check=False)


def read_only(random: Random, directory: Path, recipe: Recipe, expected: dict[str, Any], operations: int) -> str:
    """A directory that nobody may write into any more, and then may again."""
    out = directory / "run"
    done = run(recipe.arguments(out), out, Accident.draw(random, "read-only", operations))
    make_writable(out, True)
    if done.code:
        _assert_in_words(done)
    assert_safe(out, done)
    _goes_on(recipe, out, expected)
    return "in words, then the same" if done.code else "the same"


def broken_checkpoint(
    random: Random, directory: Path, recipe: Recipe, expected: dict[str, Any], operations: int
) -> str:
    """A checkpoint that is cut off, or has another bit, after a crash."""
    out = directory / "run"
    run(recipe.arguments(out), out, Accident.draw(random, "kill", operations))
    if (out / "result.json").exists():
        return "had ended: reads no checkpoint any more"
    files = sorted((out / "checkpoints").glob("*")) if (out / "checkpoints").exists() else []
    files = [path for path in files if path.is_file() and path.stat().st_size]
    if not files:
        _goes_on(recipe, out, expected)
        return "no checkpoint yet: the same"
    for path in random.sample(files, random.randint(1, min(2, len(files)))):
        content = bytearray(path.read_bytes())
        place = random.randrange(len(content))
        if random.random() < 0.5:
            content = content[:place]
        else:
            content[place] ^= 1 << random.randrange(8)
        path.write_bytes(bytes(content))
    done = run(recipe.arguments(out), out)
    if done.code:
        _assert_in_words(done)
        assert BROKEN in done.said, f"exit code {done.code}: {done.said[-500:]}"
        shutil.rmtree(out)
        _goes_on(recipe, out, expected)
        return "all were broken: said so, then the same from the start"
    assert_same(out, expected)
    return "the same"


def company(random: Random, directory: Path, recipe: Recipe, expected: dict[str, Any], operations: int) -> str:
    """Two processes in one directory: one of them leaves, in words."""
    out = directory / "run"
    processes = [start(recipe.arguments(out), out) for _ in range(2)]
    both = [ended(process) for process in processes]
    assert any(done.code == 0 for done in both), f"neither ends well: {[done.said[-300:] for done in both]}"
    for done in both:
        if done.code:
            _assert_in_words(done)
            assert "another process" in done.said, done.said[-300:]
    assert_same(out, expected)
    return "one refused, the other the same" if any(done.code for done in both) else "one after the other, the same"


def clock(random: Random, directory: Path, recipe: Recipe, expected: dict[str, Any], operations: int) -> str:
    """A clock that jumps back by an hour."""
    out = directory / "run"
    done = run(recipe.arguments(out), out, Accident.draw(random, "clock", operations))
    assert done.code == 0, f"exit code {done.code}: {done.said[-500:]}"
    assert_same(out, expected)
    return "the same"


def stopped(random: Random, directory: Path, recipe: Recipe, expected: dict[str, Any], operations: int) -> str:
    """SIGTERM, once or twice, most often while something is being saved."""
    out = directory / "run"
    kind = random.choice(("terminate", "terminate", "terminate twice"))
    done = run(recipe.arguments(out), out, Accident.draw(random, kind, operations))  # type: ignore[arg-type]
    assert done.code in (0, -signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGTERM), (
        f"exit code {done.code}: {done.said[-500:]}"
    )
    assert "Traceback" not in done.said, f"a traceback: {done.said[-700:]}"
    assert_safe(out, done)
    _goes_on(recipe, out, expected)
    return f"{kind}, then the same"


KINDS: dict[str, Callable[[Random, Path, Recipe, dict[str, Any], int], str]] = {
    "full disk": full_disk,
    "read-only": read_only,
    "broken checkpoint": broken_checkpoint,
    "two processes": company,
    "clock": clock,
    "SIGTERM": stopped,
}
