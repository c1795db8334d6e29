"""The directory of a run: one run, of one configuration, on one text, by one process at a time."""

import dataclasses
from pathlib import Path

import pytest

from bipolar._tools.files import locked
from bipolar.lab.cli import main
from bipolar.lab.errors import UsageError
from bipolar.lab.training.runs import load_config
from bipolar.lab.training.text import TextConfig, evaluate_text, train_text
from tests.helpers.text_runs import TEXT, text_config


def test_a_configuration_survives_its_file(finished: Path, corpus: Path) -> None:
    loaded = load_config(TextConfig, finished)
    assert loaded.out == finished
    given = text_config(corpus, finished, max_steps=450)
    assert loaded.recipe == given.recipe
    assert dataclasses.replace(loaded, halve_from=None) == given  # a file holds the defaults, too


def test_a_run_goes_on_as_it_was_configured(corpus: Path, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--max-steps, --lr: --resume goes on with a run as it was configured"):
        train_text(TextConfig(resume=finished, max_steps=900, lr=0.1))


@pytest.mark.parametrize("change", [("q", "Q"), ("q", "qu"), ("q", "k")])
def test_another_text_is_noticed(corpus: Path, tmp_path: Path, change: tuple[str, str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    train_text(text_config(text, tmp_path / "run", max_steps=2))
    text.write_text(TEXT.replace(*change))
    for again in (
        lambda: train_text(TextConfig(resume=tmp_path / "run")),
        lambda: evaluate_text(tmp_path / "run", "test"),
    ):
        with pytest.raises(UsageError, match=r"this is not the text that .*run began with"):
            again()


def test_one_process_at_a_time(corpus: Path, tmp_path: Path) -> None:
    with locked(tmp_path / "run"), pytest.raises(FileExistsError, match="another process is at work here"):
        train_text(text_config(corpus, tmp_path / "run", max_steps=2))
    train_text(text_config(corpus, tmp_path / "run", max_steps=2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "not the directory of a run"),
        ('{"task": "text", "config": {"colour": 1}}', "config.json: not as it was written"),
        ('{"task": "images", "config": {}}', "a run of images, not of text"),
    ],
)
def test_a_configuration_that_is_not_one(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UsageError, match=message):
        train_text(TextConfig(resume=tmp_path))


def test_a_run_is_not_overwritten_by_another(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "taken"
    train_text(text_config(corpus, out, max_steps=2))
    with pytest.raises(UsageError, match="there is another run here; --resume"):
        train_text(text_config(corpus, out, max_steps=2, lr=1e-4))


def test_resuming_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the directory of a run"):
        train_text(TextConfig(resume=tmp_path))


def test_a_directory_that_cannot_be_written_to(corpus: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(SystemExit, match="Not a directory"):
        main(["train", "text", "--data", str(corpus), "--out", str(blocked / "run"), "--batch-size", "4"])
