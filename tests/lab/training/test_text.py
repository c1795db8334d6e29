"""Training on text: it learns, it can be evaluated and sampled, and follows the paper's recipe."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import bipolar
from bipolar.lab.cli import main
from bipolar.lab.data import load_text
from bipolar.lab.errors import UsageError
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.text import TextConfig, TextModel, TextTask, evaluate_text, load_model, train_text
from tests.helpers.text_runs import MODEL, metrics, text_config


def test_it_learns_and_leaves_what_it_should(finished: Path) -> None:
    rows = metrics(finished)
    assert rows[-1].keys() == {"step", "epoch", "test_bpc", "best_valid_bpc"}
    train = [row["train_bpc"] for row in rows if "train_bpc" in row]
    assert train[0] > 3 > 2 > train[-1]
    valid = [row for row in rows if "valid_bpc" in row]
    assert [row["step"] for row in valid] == [202, 404, 450]
    result = json.loads((finished / "result.json").read_text())
    assert result["test_bpc"] == rows[-1]["test_bpc"]
    assert result["best_valid_bpc"] == min(row["valid_bpc"] for row in valid)
    stored = json.loads((finished / "config.json").read_text())
    assert stored["config"]["seed"] == 1
    assert stored["versions"]["torch"] == torch.__version__
    assert set(stored) == {"task", "config", "data_dir", "steps", "vocabulary", "text", "commit", "machine", "versions"}
    assert len(list((finished / "checkpoints").glob("step-*.pt"))) == 2
    assert (finished / "checkpoints/best.pt").exists()
    assert list((finished / "tensorboard").glob("events*"))
    assert {path.name for path in (finished / "model").iterdir()} == {"config.json", "model.safetensors"}
    assert {path.name for path in finished.iterdir()} == {
        *(".lock", "checkpoints", "config.json", "metrics.jsonl", "model", "result.json", "tensorboard"),
    }


def test_without_lsuv_the_stack_keeps_its_random_start(corpus: Path, tmp_path: Path) -> None:
    text = load_text(str(corpus), tmp_path, (0.9, 0.05, 0.05))

    def start(lsuv: Any) -> torch.Tensor:
        torch.manual_seed(1)
        task = TextTask(text_config(corpus, tmp_path, model=dataclasses.replace(MODEL, lsuv=lsuv)), text)
        task.setup(Machine(accelerator="cpu").fabric())
        return task.model.get_parameter("rnn.weight_hh_l2").detach()

    torch.manual_seed(1)
    fresh = TextConfig(model=MODEL).build(text.vocabulary).get_parameter("rnn.weight_hh_l2")
    assert torch.equal(start("none"), fresh)
    assert not torch.equal(start("variance"), fresh)


def test_evaluation_and_sampling(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    assert evaluate_text(finished, "test")["test_bpc"] == pytest.approx(result["test_bpc"], rel=1e-6)
    with pytest.raises(UsageError, match="--split dev: expected one of train, valid, test"):
        evaluate_text(finished, "dev")
    model = load_model(finished)
    for run in (finished, str(finished)):
        for again in (load_model(run), bipolar.load(run)):
            assert again.generate("the ", 20, temperature=0) == model.generate("the ", 20, temperature=0)
            assert not again.training
    for options, message in (
        ("--prompt é", "--prompt: the symbol 'é' is not in the model's vocabulary"),
        ("--prompt=", "--prompt: expected at least one"),
        ("--temperature -1", "--temperature: expected 0 or more, got -1"),
        ("--top-k 0", "--top-k: expected at least 1, got 0"),
        ("--seed -1", "--seed -1"),
    ):
        with pytest.raises(SystemExit, match=message):
            main(["sample", str(finished), *options.split()])


class TestRecipe:
    def test_the_papers_defaults(self) -> None:
        config, ptb, text8 = TextConfig(), TextConfig().recipe, TextConfig("text8").recipe
        assert (config.batch_size, config.window, config.length.max_epochs) == (128, 50, 200)
        assert (ptb.lr, ptb.validate_every, ptb.rates.dropout) == (2e-4, 4, 0)
        assert (text8.lr, text8.validate_every, text8.rates.dropout, text8.rates.block_dropout) == (5e-5, 1, 0.01, 0.01)
        assert TextConfig("text8", TextModel(dropout=0.2)).recipe.rates.dropout == 0.2

    @pytest.mark.parametrize(("halve_from", "halved"), [(4, [1, 1, 1, 2, 2, 4]), (2, [1, 2, 2, 4, 4, 8])])
    def test_the_rate_is_halved_when_validation_does_not_improve(
        self, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halve_from: int, halved: list[int]
    ) -> None:
        settings = text_config(corpus, tmp_path, halve_from=halve_from, validate_every=3)
        task = TextTask(settings, load_text(str(corpus), tmp_path))
        task.setup(settings.machine.fabric())
        values = iter([3.0, 3.0, 2.0, 2.5, 2.4, 2.4])
        monkeypatch.setattr(task, "evaluate", lambda _: next(values))
        rows = [task.after_epoch(epoch, final=False) for epoch in range(18)]
        assert [epoch for epoch, row in enumerate(rows) if row is not None] == [2, 5, 8, 11, 14, 17]
        assert [row["lr"] for row in rows if row is not None] == [5e-3 / factor for factor in halved]

    def test_budgets_of_other_cells(self, corpus: Path, tmp_path: Path) -> None:
        for cell in ("stack", "lstm", "gru", "rnn"):
            model = TextConfig(model=TextModel(2, cell=cell, params=20_000)).build("abcdef")
            assert abs(model.num_parameters / 20_000 - 1) < 0.05
        settings = TextConfig(corpus.name, TextModel(2, cell="lstm", params=20_000))
        assert settings.directory == Path("runs/fox-2x20000-lstm-1")

    @pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
    def test_other_cells_can_be_evaluated_and_sampled(self, corpus: Path, tmp_path: Path, cell: Any) -> None:
        result = train_text(text_config(corpus, tmp_path, model=TextModel(2, 16, cell=cell, dropout=0.2), max_steps=20))
        assert result["status"] == "finished"
        assert evaluate_text(tmp_path, "test")["test_bpc"] == pytest.approx(result["test_bpc"], rel=1e-6)
        assert len(load_model(tmp_path).generate("the ", 10)) == 10

    def task(self, corpus: Path, **options: Any) -> TextTask:
        settings = text_config(corpus, Path("unused"), model=TextModel(4, 16, dropout=0.0), **options)
        task = TextTask(settings, load_text(str(corpus), Path()))
        with torch.random.fork_rng():
            task.setup(settings.machine.fabric())
        return task

    def test_the_loss_is_in_bits_and_the_state_carried_over(self, corpus: Path) -> None:
        """Two windows against one pass over both, computed here."""
        task = self.task(corpus)
        streams = task.streams["train"]
        task.start_epoch(3)
        found = [task.loss(index)[1].item() for index in range(2)]
        x, y = (torch.cat(parts) for parts in zip(*(streams.at(i, task.offset) for i in range(2)), strict=True))
        logits, _ = task.model(x)
        for i, value in enumerate(found):
            part = slice(10 * i, 10 * i + 10)
            nats = torch.nn.functional.cross_entropy(logits[part].flatten(0, 1), y[part].flatten())
            assert value == pytest.approx(nats.item() / math.log(2), rel=1e-5)
        task.start_epoch(4)
        assert task.state is None  # each epoch begins anew
        offsets = set()
        for epoch in range(20):
            task.start_epoch(epoch)
            offsets.add(task.offset)
        assert len(offsets) > 5

    def test_evaluation_is_one_pass_over_the_text(self, corpus: Path) -> None:
        task = self.task(corpus)
        streams = task.streams["valid"]
        x, y = (torch.cat(parts) for parts in zip(*(streams.at(i) for i in range(streams.windows)), strict=True))
        with torch.no_grad():
            logits, _ = task.model.eval()(x)
        nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        assert task.evaluate("valid") == pytest.approx(nats.item() / math.log(2), rel=1e-5)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"max_steps": 0}, "--max-steps 0: expected at least 1"),
            ({"max_valid_windows": 0}, "--max-valid-windows 0: expected at least 1"),
            ({"halve_from": 0}, "--halve-from 0: expected at least 1"),
            ({"lr": 0.0}, "--lr 0.0: expected a positive number"),
            ({"lr": math.inf}, "--lr inf: expected a positive number"),
            ({"seed": 2**40}, "--seed 1099511627776: expected 0 to"),
            ({"batch_size": 5000}, "less than one batch of 5000 x 10"),
            ({"machine": Machine(devices=0)}, "--devices 0: expected at least 1"),
            ({"machine": Machine(num_nodes=0)}, "--num-nodes 0: expected at least 1"),
            ({"machine": Machine(accelerator="abacus")}, "--accelerator abacus"),
            ({"model": TextModel(2, 8, nonlinearity="foo")}, "--model.nonlinearity: .*'foo'"),
            ({"train_share": 0.0}, "--train-share 0.0: expected a share above 0, and 1 at most"),
            ({"model": TextModel(2, 8, dropout=1.5)}, "--model.dropout: .*1.5"),
            ({"model": TextModel(0, 8)}, "--model.num-layers: .*0"),
            ({"model": TextModel(2, 0)}, "--model.hidden-size: .*0"),
            ({"model": TextModel(2, 8, skip_every=0)}, "--model.skip-every: .*0"),
            ({"model": TextModel(2, 8, gamma=2.0)}, "--model.gamma: .*2"),
            ({"model": TextModel(2, 8, params=0.5)}, "--model.params: expected a finite number of at least 1, got 0.5"),
            ({"model": TextModel(2, 8, gradient="after skip")}, "--model.gradient: "),
            (
                {"model": TextModel(2, 8, cell="lstm", block_dropout=0.1)},
                "--model.block-dropout: the cell 'lstm' has no",
            ),
            ({"model": TextModel(2, 8, cell="lstm", nonlinearity="relu")}, "--model.nonlinearity: the cell 'lstm'"),
            ({"model": TextModel(2, 8, cell="gru", gradient="not through time")}, "--model.gradient: the cell 'gru'"),
        ],
    )
    def test_bad_arguments(self, corpus: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            train_text(text_config(corpus, tmp_path / "run", **options))
        assert not (tmp_path / "run").exists()
