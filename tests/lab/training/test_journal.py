"""The journal: metrics that go on where the last checkpoint left off."""

import json
from pathlib import Path

import pytest

from bipolar.lab.training.guard import Guard
from bipolar.lab.training.text import TextConfig, train_text
from tests.helpers.interruptions import ask_to_stop, interrupt_at
from tests.helpers.text_runs import metrics, text_config


def test_metrics_that_were_shortened_in_between(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guard, "check", interrupt_at(33, ask_to_stop))
        train_text(text_config(corpus, out, max_steps=60))
    (out / "metrics.jsonl").write_bytes(b"")
    train_text(TextConfig(resume=out))
    assert b"\0" not in (out / "metrics.jsonl").read_bytes()
    assert [row["step"] for row in metrics(out) if "train_bpc" in row] == [40, 50, 60]


def test_a_watcher_finds_the_rate_and_the_steps_of_the_whole_run(finished: Path) -> None:
    lines = [row for row in metrics(finished) if "train_bpc" in row]
    config = json.loads((finished / "config.json").read_text())
    assert [row["lr"] for row in lines] == [config["config"]["lr"]] * len(lines)
    assert config["steps"] == lines[-1]["step"]
