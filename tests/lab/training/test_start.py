"""A start from the weights of another run: what a run takes over, what it keeps of its origin, what it refuses."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bipolar.lab.cli import main
from bipolar.lab.errors import UsageError
from bipolar.lab.training.guard import Guard
from bipolar.lab.training.publication import publish
from bipolar.lab.training.text import TextConfig, TextModel, evaluate_text, load_model, train_text
from bipolar.lab.training.text.rival_options import RivalOptions
from bipolar.lab.training.update import Update
from tests.helpers.interruptions import KilledError, die, interrupt_at
from tests.helpers.text_runs import MODEL, metrics, text_config


def later(corpus: Path, out: Path, start: Path, **changes: Any) -> TextConfig:
    """A second stage, of a few steps at a low rate."""
    config = text_config(corpus, out, start=str(start), max_steps=6, update=Update(recipe="fast"), lr=1e-5)
    return dataclasses.replace(config, **changes)


@pytest.fixture(scope="module")
def second(finished: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "second"
    assert train_text(later(corpus, out, finished))["status"] == "finished"
    return out


def test_it_begins_where_the_other_ended(finished: Path, second: Path) -> None:
    before = min(row["valid_bpc"] for row in metrics(finished) if "valid_bpc" in row)
    assert evaluate_text(second, "valid")["valid_bpc"] == pytest.approx(before, abs=0.05)
    weights, moved = load_model(finished).state_dict(), load_model(second).state_dict()
    assert all(torch.allclose(value, moved[name], atol=1e-3) for name, value in weights.items())
    assert not all(torch.equal(value, moved[name]) for name, value in weights.items())


def test_it_keeps_its_origin(finished: Path, second: Path) -> None:
    first, kept = (json.loads((run / "config.json").read_text()) for run in (finished, second))
    assert kept["config"]["start"] == finished.name
    assert kept["start"]["config"] == first["config"]
    assert kept["start"]["step"] == json.loads((finished / "result.json").read_text())["step"]
    assert kept["start"]["directory"] == str(finished)
    assert "data_dir" not in kept["start"]


def test_it_goes_on_without_the_other(finished: Path, second: Path, corpus: Path, tmp_path: Path) -> None:
    """A run that has begun needs its start no more: it is longer by a resume, also where that directory is gone."""
    copy = tmp_path / "gone"
    (copy / "model").mkdir(parents=True)
    for name in ("config.json", "result.json", "model/config.json", "model/model.safetensors"):
        (copy / name).write_bytes((finished / name).read_bytes())
    out = tmp_path / "run"
    train_text(later(corpus, out, copy))
    assert metrics(out)[-1]["test_bpc"] == metrics(second)[-1]["test_bpc"]  # from a model alone, too
    copy.rename(tmp_path / "elsewhere")
    main(["train", "text", "--resume", str(out), "--max-steps", "8"])
    assert metrics(out)[-1]["step"] == 8


def test_killed_before_its_first_checkpoint(finished: Path, second: Path, corpus: Path, tmp_path: Path) -> None:
    """A resume finds the start again, from anywhere."""
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guard, "check", interrupt_at(1, die))
        with pytest.raises(KilledError):
            train_text(later(corpus, out, finished))
    assert not list((out / "checkpoints").glob("*.pt"))
    train_text(TextConfig(resume=out))
    assert metrics(out) == metrics(second)


def test_without_checkpoints_it_starts_again_from_the_weights(
    finished: Path, second: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(second, out)
    shutil.rmtree(out / "checkpoints")
    (out / "result.json").write_text('{"status": "fin')
    train_text(later(corpus, out, finished))
    assert metrics(out)[-1]["test_bpc"] == metrics(second)[-1]["test_bpc"]


def test_another_start_is_another_run(finished: Path, second: Path, corpus: Path) -> None:
    """Of one name in two places: other directories, and no start of one goes on with the other."""
    copy = second.parent / "elsewhere" / finished.name
    for name in ("config.json", "result.json", "model/config.json", "model/model.safetensors"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((finished / name).read_bytes())
    one, other = (dataclasses.replace(later(corpus, second, start), out=None) for start in (finished, copy))
    assert one.directory != other.directory
    assert train_text(later(corpus, second, copy))["status"] == "finished"  # the same weights
    weights = load_file(copy / "model/model.safetensors")
    save_file({name: value + 1 for name, value in weights.items()}, copy / "model/model.safetensors")
    with pytest.raises(UsageError, match=r"--start .*: the run in .* started from other weights; --resume"):
        train_text(later(corpus, second, copy))
    shutil.rmtree(copy)
    with pytest.raises(UsageError, match=r"--start .*: the run in .* started from other weights"):
        train_text(later(corpus, second, copy))
    assert train_text(TextConfig(resume=second))["status"] == "finished"


def test_a_start_that_became_longer(corpus: Path, tmp_path: Path) -> None:
    """A resume does not look at it; its card says how it was made."""
    first, second = tmp_path / "first", tmp_path / "second"
    train_text(text_config(corpus, first, max_steps=4))
    train_text(TextConfig(resume=first, max_steps=6))
    train_text(later(corpus, second, first))
    train_text(TextConfig(resume=first, max_steps=8))
    train_text(TextConfig(resume=second, max_steps=8))
    assert metrics(second)[-1]["step"] == 8
    card = (publish(second, tmp_path / "published", data_dir=corpus.parent) / "README.md").read_text()
    assert card.count("At step 4 it was made longer, to 6 steps.") == 1
    assert card.count("At step 6 it was made longer, to 8 steps.") == 1


def test_the_card_of_stages_with_one_name(corpus: Path, tmp_path: Path) -> None:
    """And with spaces in it, one in half precision and one that was stopped."""
    one, two, three = (tmp_path / place / "a run" for place in "abc")
    train_text(text_config(corpus, one, max_steps=9, checkpoint_every=3))
    (one / "result.json").unlink()
    train_text(later(corpus, two, one))
    half = publish(two, tmp_path / "half", half=True, data_dir=corpus.parent)
    train_text(later(corpus, three, half))
    train_text(later(corpus, tmp_path / "d" / "a run", three))
    card = (publish(tmp_path / "d" / "a run", tmp_path / "last", data_dir=corpus.parent) / "README.md").read_text()
    options = re.findall(r"--(start|out) (?!runs)('[^']*'|\S+)", card)
    assert [name for kind, name in options if kind == "out"] == ["'a run'", "half-run", "'a run-3'"]
    assert [name for kind, name in options if kind == "start"] == ["'a run'", "half", "'a run-3'"]
    export = "```sh\nbipolar export half-run half --half\n```"
    assert card.index("--out half-run") < card.index(export) < card.index("--start half ")
    assert card.count("Not to its end, on ") == 1
    assert card.count("starts from these weights in float16:") == card.count("bipolar export half") == 1
    assert "In 4 stages" not in card  # the first one's length is not known


def test_the_card_has_both_stages(finished: Path, second: Path, corpus: Path, tmp_path: Path) -> None:
    card = (publish(second, tmp_path / "published", data_dir=corpus.parent) / "README.md").read_text()
    assert card.count("bipolar train text") == 2
    assert "In 2 stages 456 steps" in card
    assert "--out whole" in card
    assert "--start whole" in card
    assert str(finished.parent) not in (tmp_path / "published/config.json").read_text()


def test_what_it_refuses(finished: Path, corpus: Path, tmp_path: Path) -> None:
    wide = dataclasses.replace(MODEL, hidden_size=2 * MODEL.hidden_size)
    with pytest.raises(UsageError, match="its weights are those of another network"):
        train_text(later(corpus, tmp_path / "wide", finished, model=wide))
    other = tmp_path / "other.txt"
    other.write_text("0123456789\n" * 500)
    with pytest.raises(UsageError, match=r"its text has .* symbols, .* has 11, and they are not the same"):
        train_text(later(corpus, tmp_path / "text", finished, data=str(other)))
    with pytest.raises(UsageError, match=r"--start .*: not the directory of a run"):
        train_text(later(corpus, tmp_path / "none", tmp_path))
    elu = dataclasses.replace(MODEL, nonlinearity="elu")
    with pytest.raises(UsageError, match=r"that network has --model.nonlinearity belu, this one elu"):
        train_text(later(corpus, tmp_path / "elu", finished, model=elu))
    damaged = tmp_path / "damaged"
    for name, content in (
        ("result.json", "[1]"),
        ("config.json", '{"task": "text", "config": {}}'),
        ("config.json", '{"task": "text", "config": {"model": {}}}'),
    ):
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(finished, damaged)
        (damaged / name).write_text(content)
        if name == "config.json":
            with pytest.raises(UsageError, match=r"--start .*: its config.json is not as it was written"):
                train_text(later(corpus, tmp_path / "none", damaged))
        else:  # a run that has not ended
            assert train_text(later(corpus, tmp_path / "whole", damaged))["status"] == "finished"
    diverged = tmp_path / "diverged"
    train_text(text_config(corpus, diverged, lr=100.0, max_steps=400, patience=300))
    with pytest.raises(UsageError, match=r"--start .*: this run did not converge; start from another"):
        train_text(later(corpus, tmp_path / "after", diverged))
    assert not (tmp_path / "after").exists()


def test_options_of_rivals_that_the_weights_fit(corpus: Path, tmp_path: Path) -> None:
    model = TextModel(1, 16, cell="transformer")
    train_text(text_config(corpus, tmp_path / "run", model=model, max_steps=3))
    other = dataclasses.replace(model, rival=RivalOptions(heads=2))
    with pytest.raises(UsageError, match=r"that network has --model.heads None, this one 2"):
        train_text(later(corpus, tmp_path / "other", tmp_path / "run", model=other))
