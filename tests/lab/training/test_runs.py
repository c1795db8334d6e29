"""The directory of a run: one run, of one configuration, on one text, by one process at a time."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bipolar._tools.files import locked
from bipolar.lab.cli import main
from bipolar.lab.errors import UsageError
from bipolar.lab.training.images import ImageConfig
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.runs import load_config, stored
from bipolar.lab.training.text import TextConfig, TextModel, evaluate_text, load_model, train_text
from bipolar.lab.training.update import Update
from tests.helpers.text_runs import TEXT, metrics, text_config


def test_a_configuration_survives_its_file(finished: Path, corpus: Path) -> None:
    loaded = load_config(TextConfig, finished)
    assert loaded.out == finished
    given = text_config(corpus, finished, max_steps=450)
    assert loaded.recipe == given.recipe
    assert (
        dataclasses.replace(loaded, halve_from=None, max_epochs=None, data_dir=None) == given
    )  # a file holds the defaults, too


def test_a_run_goes_on_as_it_was_configured(corpus: Path, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--window, --lr: --resume goes on with a run as it was configured"):
        train_text(TextConfig(resume=finished, max_steps=900, window=3, lr=0.1))
    nested = TextConfig(resume=finished, model=TextModel(dropout=0.2), update=Update(recipe="fast", rescues=3))
    with pytest.raises(UsageError, match=r"^--recipe, --rescues, --model\.dropout: --resume goes on"):
        train_text(nested)


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
        ('{"task": "text", "config": []}', "not the directory of a run"),
        ('{"task": "text", "config": {"seed": "1"}}', "config.json: not as it was written .seed: '1'"),
        ('{"task": "text", "config": {"model": {"gamma": []}}}', "config.json: not as it was written .gamma: "),
        ('{"task": "text", "config": {"model": {"cell": "<b>"}}}', "config.json: not as it was written .cell: '<b>'"),
        ('{"task": "text", "config": {"model": {"num_layers": 1000000000000}}}', "num-layers: expected at most"),
        ("[" * 100_000, "not the directory of a run .nested too deeply"),
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


def test_a_run_that_was_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its own place, from another directory, and on another machine, where the text is somewhere else."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "fox.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path / "here")
    out = tmp_path / "here" / "run"
    train_text(dataclasses.replace(text_config(Path("fox.txt"), out, max_steps=2)))
    expected = evaluate_text(out, "test")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fox.txt").write_text(TEXT.replace("q", "k"))  # another one of this name
    assert evaluate_text(out, "test") == expected
    (tmp_path / "fox.txt").unlink()
    (tmp_path / "here").rename(tmp_path / "there")
    moved = tmp_path / "there" / "run"
    message = r"--data fox.txt: neither .* If fox.txt is somewhere else, --data-dir DIRECTORY says in which directory"
    for again in (lambda: evaluate_text(moved, "test"), lambda: train_text(TextConfig(resume=moved, max_steps=4))):
        with pytest.raises(UsageError, match=message):
            again()
    assert evaluate_text(moved, "test", tmp_path / "there") == expected
    assert load_model(moved).generate("the ", 3)
    values = json.loads((moved / "config.json").read_text())
    values["config"]["data"] = "/home/of/another/fox.txt"
    values["config"]["machine"]["accelerator"] = "cuda"
    (moved / "config.json").write_text(json.dumps(values))
    longer = TextConfig(resume=moved, data_dir=tmp_path / "there", max_steps=4, machine=Machine(accelerator="cpu"))
    assert train_text(longer)["step"] == 4
    assert evaluate_text(moved, "test")  # the place of the text is known from now on


def test_names_tell_runs_apart() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"lr": 0.001},
        {"max_steps": 300, "data": "text8"},
        {"model": TextModel(gamma=0.3)},
        {"machine": Machine(precision="bf16-mixed")},
        {"data": "fox.txt", "split": (0.8, 0.1, 0.1)},
        {"data": "a/fox.txt"},
        {"data": "b/fox.txt"},
    ]
    names = [TextConfig(**change).directory.name for change in changes]
    assert names[:3] == ["ptb-36x256-belu-1", "ptb-36x256-belu-1-lr-0.001", "text8-36x256-belu-1-max-steps-300"]
    assert len({*names}) == len(names)
    assert re.fullmatch(r"[\w.+-]+", "".join(names))
    assert ImageConfig().directory.name == "cifar10-wrn-28-10-brelu-1"
    many = TextConfig(model=TextModel(gamma=0.3, skip_scale=0.5, skip_every=7), window=3, lr=0.12345678, halve_from=12)
    assert len(dataclasses.replace(many, validate_every=5, batch_size=12345).directory.name) < 200


def test_a_finished_run_becomes_longer(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And computes what a run of that length from the beginning computes: its rate depends on validations alone."""
    out, whole = tmp_path / "run", tmp_path / "whole"
    for run, steps in ((out, 6), (whole, 12)):
        train_text(text_config(corpus, run, max_steps=steps, log_every=1))
    capsys.readouterr()
    result = train_text(TextConfig(resume=out, max_steps=12))
    said = " ".join(capsys.readouterr().err.split())
    assert "goes on after step 6, to step 12. The learning rate stays at 0.005, and is halved" in said
    assert (result["status"], result["step"]) == ("finished", 12)

    def losses(run: Path) -> list[float]:
        return [row["train_bpc"] for row in metrics(run) if "train_bpc" in row]

    assert losses(out) == losses(whole)
    values = stored(out)
    assert (values["config"]["max_steps"], values["extended"]) == (12, [{"step": 6, "total": 12}])
    with pytest.raises(UsageError, match="the run has 12 steps already"):
        train_text(TextConfig(resume=out, max_steps=9))
    assert train_text(TextConfig(resume=out, max_epochs=1, machine=Machine(accelerator="cpu")))["step"] == 202


def test_a_finished_run_stays_as_it_is(finished: Path) -> None:
    def state() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in finished.rglob("*")}

    before = state()
    assert train_text(TextConfig(resume=finished)) == json.loads((finished / "result.json").read_text())
    assert state() == before


def test_epochs_are_counted_from_one_and_alike(finished: Path) -> None:
    rows = metrics(finished)  # 202 steps an epoch
    assert all(row["epoch"] == -(-row["step"] // 202) for row in rows)
    assert json.loads((finished / "result.json").read_text())["epoch"] == 3


def test_resuming_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the directory of a run"):
        train_text(TextConfig(resume=tmp_path))


def test_a_directory_that_cannot_be_written_to(corpus: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(SystemExit, match="Not a directory"):
        main(["train", "text", "--data", str(corpus), "--out", str(blocked / "run"), "--batch-size", "4"])
