"""Checkpoints: a broken one is noticed, and a full disk leaves none that is broken."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from bipolar.lab.cli import main
from bipolar.lab.errors import UsageError
from bipolar.lab.training.checkpoints import Checkpoints
from bipolar.lab.training.guard import Guard
from bipolar.lab.training.text import TextConfig, TextModel, train_text
from tests.helpers.interruptions import ask_to_stop, interrupt_at
from tests.helpers.text_runs import metrics, options_of, text_config


def break_file(path: Path, how: str = "cut") -> None:
    content = bytearray(path.read_bytes())
    if how == "cut":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_broken_checkpoint_is_noticed(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train_text(text_config(corpus, whole, max_steps=31))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guard, "check", interrupt_at(23, ask_to_stop))
        train_text(text_config(corpus, broken, max_steps=31))
    break_file(broken / "checkpoints/step-000000024.pt", damage)
    train_text(TextConfig(resume=broken))
    assert "step-000000024.pt: this checkpoint is broken" in capsys.readouterr().err
    assert metrics(broken) == metrics(whole)


def test_where_no_checkpoint_is_left(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    train_text(text_config(corpus, out, max_steps=21))
    for path in (out / "checkpoints").glob("step-*.pt"):
        break_file(path)
    state = Checkpoints(out / "checkpoints").last()
    assert state is not None
    assert state["loop"]["step"] == 21  # the best one
    break_file(out / "checkpoints/best.pt")
    capsys.readouterr()
    assert Checkpoints(out / "checkpoints").best() is None
    assert "best.pt: this checkpoint is broken; the last one takes its place" in capsys.readouterr().err
    before = (out / "metrics.jsonl").read_bytes()
    (out / "result.json").unlink()  # else the run is over
    with pytest.raises(UsageError, match="there is no checkpoint that is not broken"):
        train_text(TextConfig(resume=out))
    assert (out / "metrics.jsonl").read_bytes() == before


def test_a_full_disk(corpus: Path, tmp_path: Path) -> None:
    """A limit on the size of files, within the second checkpoint's reach, is to a process what a full disk is."""
    settings = text_config(corpus, tmp_path / "run", model=TextModel(4, 64, dropout=0.0), max_steps=20)
    with files_of_at_most(100 * 1024), pytest.raises(SystemExit, match="cannot write") as stop:
        main(["train", "text", *options_of(settings)])
    assert "What was saved before is still there" in str(stop.value)
    assert not list((tmp_path / "run/checkpoints").glob("*.pt*"))


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A limit on the size of the files that this process writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
