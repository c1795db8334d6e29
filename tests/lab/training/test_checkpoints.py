"""Checkpoints: a broken one is noticed, and a full disk leaves none that is broken."""

import contextlib
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bipolar._tools.files import digest
from bipolar.lab.cli import main
from bipolar.lab.errors import UsageError
from bipolar.lab.training.checkpoints import PARTS, Checkpoints, best_of
from bipolar.lab.training.exported import export
from bipolar.lab.training.guard import Guard
from bipolar.lab.training.text import TextConfig, TextModel, train_text
from bipolar.lab.training.text.runs import load_model
from tests.helpers.harm import Harmful
from tests.helpers.interruptions import KilledError, ask_to_stop, interrupt_at
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


@pytest.mark.parametrize("content", ["harm", "a list", "parts"])
def test_a_checkpoint_of_another_with_a_digest_that_fits(finished: Path, tmp_path: Path, content: str) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    values = {"harm": Harmful(tmp_path / "executed"), "a list": [], "parts": {"model": {}}}
    for path in (run / "checkpoints").glob("*.pt"):
        torch.save(values[content], path)
        path.with_suffix(".sha256").write_text(digest(path))
    with pytest.raises(UsageError, match="there is no checkpoint that is not broken"):
        best_of(run)
    assert not (tmp_path / "executed").exists()


def test_a_checkpoint_that_is_none_of_the_run(corpus: Path, finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    checkpoints = Checkpoints(run / "checkpoints")
    state = checkpoints.last()
    assert state is not None
    state["model"] = {name: torch.ones(3) for name in state["model"]}
    checkpoints.save(10**8, state)
    checkpoints.save_best(state)
    with pytest.raises(UsageError, match="its configuration and its weights are not those of one model"):
        load_model(run)
    (run / "result.json").unlink()
    with pytest.raises(UsageError, match="the last checkpoint is not one of this run"):
        train_text(TextConfig(resume=run, data_dir=corpus.parent))


def test_a_crash_before_a_better_one_is_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best checkpoint has one name: until the new one has it, the old one is whole."""
    state: dict[str, Any] = dict.fromkeys(PARTS, 0)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save_best(state | {"loop": 3})
    original = Path.replace

    def die_at_checkpoints(self: Path, target: Path) -> Path:
        if target.suffix == ".pt":
            raise KilledError
        return original(self, target)

    for number in (4, 5, 6):
        monkeypatch.setattr(Path, "replace", die_at_checkpoints)
        with pytest.raises(KilledError):
            checkpoints.save_best(state | {"loop": number})
        assert checkpoints.best() == state | {"loop": 3}
    monkeypatch.undo()
    checkpoints.save_best(state | {"loop": 7})
    assert checkpoints.best() == state | {"loop": 7}


def test_what_a_crash_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "step-000000003.pt.part").write_text("half")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.last() is None
    assert list(tmp_path.iterdir())  # by reading nothing is removed: the process that writes it may live
    checkpoints.save(4, dict.fromkeys(PARTS, 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000004.pt", "step-000000004.sha256"]


def test_a_full_disk_for_the_model(finished: Path, tmp_path: Path) -> None:
    """safetensors has an error of its own; that of a run names the file, as all others do."""
    model = load_model(finished)
    with files_of_at_most(512), pytest.raises(OSError, match="cannot write"):
        export(model, tmp_path)
    assert not list(tmp_path.iterdir())


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
