"""A published run: it evaluates and samples without checkpoints, in half precision, and its card comes from the run."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import bipolar
from bipolar.lab import cli
from bipolar.lab.cli import main
from bipolar.lab.errors import UsageError
from bipolar.lab.training.card import training_command
from bipolar.lab.training.images import ImageConfig, ImageModel, evaluate_images, train_images
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.publication import loss_of, publish
from bipolar.lab.training.text import Dynamic, TextConfig, TextModel, evaluate_text, load_model, train_text
from bipolar.lab.training.update import Update
from tests.helpers.text_runs import metrics, text_config


@pytest.fixture(scope="module")
def half(finished: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("published") / "fox"
    main(["export", str(finished), str(out), "--half"])
    return out


def test_it_has_what_it_should_and_no_more(finished: Path, half: Path, corpus: Path) -> None:
    names = {str(path.relative_to(half)) for path in half.rglob("*") if path.is_file()}
    assert names == {
        *("README.md", "config.json", "metrics.jsonl", "result.json", "model/config.json", "model/model.safetensors")
    }
    assert metrics(half) == metrics(finished)
    for path in half.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert str(corpus.parent).encode() not in content  # no place on this machine
            assert str(half.parent).encode() not in content
    before, after = (json.loads((run / "config.json").read_text()) for run in (finished, half))
    assert after["config"]["data"] == corpus.name
    assert all(after[name] == before[name] for name in ("vocabulary", "text", "commit", "machine", "versions"))


def test_it_evaluates_and_writes_like_the_run(
    finished: Path, half: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = json.loads((half / "result.json").read_text())
    found = evaluate_text(half, "test", corpus.parent)
    assert found["test_bpc"] == pytest.approx(result["exported"]["test_bpc"], rel=1e-6)
    assert found["test_bpc"] == pytest.approx(result["test_bpc"], abs=0.002)
    kept, model = load_file(half / "model/model.safetensors"), load_model(half)
    assert {value.dtype for value in kept.values()} == {torch.float16}
    for again in (model, bipolar.load(half), bipolar.models.CharRNN.from_pretrained(half / "model")):
        assert all(torch.equal(value, kept[name].float()) for name, value in again.state_dict().items())
    capsys.readouterr()
    main(["sample", str(half), "--length", "20", "--temperature", "0"])
    assert capsys.readouterr().out == "the " + model.generate("the ", 20, temperature=0) + "\n"


def test_the_card(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card, result = (half / "README.md").read_text(), json.loads((half / "result.json").read_text())
    assert f"| `test_bpc` | {result['test_bpc']:.4f} | {result['exported']['test_bpc']:.4f} |" in card
    assert f"{bipolar.load(half).num_parameters:,} parameters" in card
    command = re.search(r"`bipolar (sample .*)`:\n\n```text\n(.*?)\n```", card, re.DOTALL)
    assert command is not None
    options = command[1].replace(' "the "', "").replace("--prompt ", "").split()
    main([options[0], str(half), *options[2:]])
    assert capsys.readouterr().out == command[2] + "\n"


def test_the_card_has_the_command_that_trains_the_model(
    half: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = re.search(r"bipolar (train text .*?)\n```", (half / "README.md").read_text(), re.DOTALL)
    assert command is not None
    trained: list[TextConfig] = []
    monkeypatch.setattr(cli, "_train", lambda _, config: trained.append(config))
    main([*command[1].replace("\\\n", "").split(), "--data-dir", str(corpus.parent), "--out", str(tmp_path / "again")])
    found, kept = trained[0].to_json(), json.loads((half / "config.json").read_text())["config"]
    for values in (found, kept):
        values["checkpoint_every"] = values["machine"]["accelerator"] = None  # of the machine
    assert found == kept


def test_in_one_stream(finished: Path, corpus: Path, tmp_path: Path) -> None:
    main(["export", str(finished), str(tmp_path / "kept"), "--one-stream"])
    exported = json.loads((tmp_path / "kept/result.json").read_text())["exported"]
    for split in ("valid", "test"):
        expected = evaluate_text(finished, split, corpus.parent, batch_size=1)[f"{split}_bpc"]
        assert exported["one_stream"][f"{split}_bpc"] == pytest.approx(expected, rel=1e-6)
    test = f"{exported['test_bpc']:.4f} | {exported['one_stream']['test_bpc']:.4f} |"
    card = (tmp_path / "kept/README.md").read_text()
    assert test in card
    assert "--split test --batch-size 1\n" in card


def test_by_dynamic_evaluation_and_again_from_what_was_exported(finished: Path, corpus: Path, tmp_path: Path) -> None:
    main(["export", str(finished), str(tmp_path / "first"), "--half"])
    assert "dynamic" not in (tmp_path / "first/README.md").read_text()
    options = "--dynamic 0.001 --decay 0.1 --segment 20 --data-dir"
    main(["export", str(tmp_path / "first"), str(tmp_path / "again"), *options.split(), str(corpus.parent)])
    exported = json.loads((tmp_path / "again/result.json").read_text())["exported"]
    settings = Dynamic(0.001, 0.1, segment=20)
    for split in ("valid", "test"):
        expected = evaluate_text(tmp_path / "first", split, corpus.parent, dynamic=settings)
        assert exported["dynamic"][f"dynamic_{split}_bpc"] == pytest.approx(expected[f"dynamic_{split}_bpc"], rel=1e-6)
    card = (tmp_path / "again/README.md").read_text()
    assert "| by dynamic evaluation, rate 0.001, decay 0.1 |" in card
    assert f"| `dynamic_test_bpc` |  |  | {exported['dynamic']['dynamic_test_bpc']:.4f} |" in card
    assert "--split test --dynamic 0.001 --decay 0.1 --segment 20\n" in card
    for name in ("config.json", "metrics.jsonl", "model/config.json", "model/model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()


def test_it_cannot_go_on(half: Path, corpus: Path, tmp_path: Path) -> None:
    ended = train_text(TextConfig(resume=half, data_dir=corpus.parent), show=False)
    assert ended == json.loads((half / "result.json").read_text())
    with pytest.raises(UsageError, match="an exported run, without a checkpoint to go on from"):
        train_text(TextConfig(resume=half, data_dir=corpus.parent, max_steps=900))


def test_images_in_single_precision(tmp_path: Path) -> None:
    config = ImageConfig(
        data="digits",
        model=ImageModel(depth=10, widen_factor=1, norm="batch"),
        machine=Machine(accelerator="cpu"),
        batch_size=32,
        train_images=64,
        test_images=50,
        max_epochs=1,
        out=tmp_path / "run",
    )
    result = train_images(config, show=False)
    publish(tmp_path / "run", tmp_path / "kept")
    assert evaluate_images(tmp_path / "kept", "test")["test_error"] == pytest.approx(result["test_error"])
    for name in ("run", "kept"):
        other = bipolar.load(tmp_path / name).state_dict()
        assert all(torch.equal(v, other[n]) for n, v in bipolar.load(tmp_path / "run").state_dict().items())
    assert "--model.depth 10" in (tmp_path / "kept/README.md").read_text()
    with pytest.raises(UsageError, match=r"--one-stream: .*run is not of text"):
        publish(tmp_path / "run", tmp_path / "streams", one_stream=True)
    with pytest.raises(UsageError, match=r"--dynamic: .*run is not of text"):
        publish(tmp_path / "run", tmp_path / "learning", dynamic=Dynamic(1e-5))
    with pytest.raises(UsageError, match="the run itself"):
        publish(tmp_path / "run", tmp_path / "run")
    train_images(replace(config, seed=2, out=tmp_path / "other"), show=False)
    with pytest.raises(UsageError, match="there is another run here"):
        publish(tmp_path / "other", tmp_path / "kept")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/README.md").write_text("precious")
    with pytest.raises(UsageError, match="there are other files here"):
        publish(tmp_path / "run", tmp_path / "mine")
    assert (tmp_path / "mine/README.md").read_text() == "precious"


def test_a_run_that_has_not_ended(corpus: Path, tmp_path: Path) -> None:
    train_text(text_config(corpus, tmp_path / "run", max_steps=3), show=False)
    (tmp_path / "run/result.json").unlink()
    with pytest.raises(UsageError, match="the run has not ended yet"):
        publish(tmp_path / "run", tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_what_half_precision_loses() -> None:
    weights = {"a": torch.tensor([1.0 + 2**-9, 3.0]), "steps": torch.tensor(7)}
    assert loss_of(weights, torch.float16) == 0
    assert loss_of(weights, torch.bfloat16) == 2**-18
    assert loss_of({"a": torch.tensor([1e5])}, torch.float16) > loss_of({"a": torch.tensor([1e5])}, torch.bfloat16)


def test_the_card_has_the_rates_that_the_recipe_has_not(corpus: Path, tmp_path: Path) -> None:
    """Those of the paper's recipe are no defaults of the fast one."""
    run, out = tmp_path / "run", tmp_path / "published"
    train_text(text_config(corpus, run, update=Update(recipe="fast"), lr=2e-4, validate_every=4, max_steps=3))
    card = (publish(run, out, data_dir=corpus.parent) / "README.md").read_text()
    assert "--lr 0.0002" in card
    assert "--validate-every 4" in card


def test_the_card_has_dropout_that_the_length_does_not_bring() -> None:
    config = TextConfig(model=TextModel(dropout=0.0), update=Update(recipe="fast"), max_epochs=3)
    flags = training_command(config).split()
    assert flags[flags.index("--model.dropout") + 1] == "0.0"
    assert "--model.recurrent-dropout" not in flags
