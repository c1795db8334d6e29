"""The loop: a run that is killed or stopped at any moment goes on to the last bit."""

import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bipolar.lab.errors import UsageError
from bipolar.lab.training.guard import Guard
from bipolar.lab.training.text import TextConfig, TextModel, train_text
from bipolar.lab.training.update import Update
from tests.helpers.interruptions import KilledError, ask_to_stop, die, interrupt_at
from tests.helpers.processes import bipolar_command, has_metrics, running, wait_until
from tests.helpers.text_runs import metrics, options_of, text_config


@pytest.mark.long
def test_killed_at_any_moment_and_resumed_it_is_the_run_left_alone(
    corpus: Path, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    whole = (finished / "metrics.jsonl").stat().st_size
    arguments = options_of(text_config(corpus, out, max_steps=450))
    for size in (whole // 7, whole // 2):
        with running(bipolar_command("train", "text", *arguments)) as process:
            wait_until(partial(has_metrics, out, size), process=process)  # wherever the run is at that moment
            process.kill()
            assert process.wait() == -signal.SIGKILL
        arguments = ["--resume", str(out)]
    train_text(TextConfig(resume=out))
    assert metrics(out) == metrics(finished)


def test_ctrl_c_saves_and_stops(corpus: Path, tmp_path: Path) -> None:
    """In the second of three epochs, of 20 steps here."""
    whole, out = tmp_path / "whole", tmp_path / "stopped"
    options: dict[str, Any] = {"batch_size": 16, "window": 25, "max_steps": 60, "log_every": 5}
    assert train_text(text_config(corpus, whole, **options))["status"] == "finished"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guard, "check", interrupt_at(32, ask_to_stop))  # heard in the next step
        assert train_text(text_config(corpus, out, **options))["status"] == "stopped"
    assert (out / "checkpoints/step-000000033.pt").exists()
    train_text(TextConfig(resume=out))
    assert [row["step"] for row in metrics(whole) if "valid_bpc" in row] == [20, 40, 60]
    assert metrics(out) == metrics(whole)


@pytest.mark.parametrize("cell", ["stack", "lstm"])
def test_killed_resumed_stopped_and_resumed(corpus: Path, tmp_path: Path, cell: Any) -> None:
    """Rows of metrics are cut off where they will be written again; torch's own dropout goes on, too."""
    model = TextModel(2, 8, cell=cell, dropout=0.3)
    whole, broken = (
        text_config(corpus, tmp_path / name, model=model, max_steps=60, checkpoint_every=20) for name in ("a", "b")
    )
    train_text(whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guard, "check", interrupt_at(38, die))
        with pytest.raises(KilledError):
            train_text(broken)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guard, "check", interrupt_at(23, ask_to_stop))
        assert train_text(broken)["status"] == "stopped"
    train_text(broken)
    assert whole.out is not None
    assert broken.out is not None
    assert metrics(broken.out) == metrics(whole.out)
    assert b"\0" not in (broken.out / "metrics.jsonl").read_bytes()
    assert len({path.name for path in (broken.out / "tensorboard").iterdir()}) == 3


def test_looks_within_an_epoch_change_nothing(corpus: Path, tmp_path: Path) -> None:
    update = Update(recipe="fast", average=0.5)
    plain = text_config(corpus, tmp_path / "plain", max_steps=20, update=update, log_every=5)
    looking = replace(plain, out=tmp_path / "looking", look_every=5)
    ends = [train_text(config) for config in (plain, looking)]
    assert ends[0] | {"seconds": None} == ends[1] | {"seconds": None}
    rows = metrics(tmp_path / "looking")
    looks = [row for row in rows if "valid_bpc" in row]
    assert [row["step"] for row in looks] == [5, 10, 15, 20]
    assert all("averaged_valid_bpc" in row for row in looks)
    assert [row for row in rows if row not in looks[:-1]] == metrics(tmp_path / "plain")
    with pytest.raises(UsageError, match="--look-every 0: expected at least 1"):
        replace(plain, look_every=0).check()
