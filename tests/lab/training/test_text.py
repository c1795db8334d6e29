"""Training: it learns, it resumes to the last bit, and it fails with a sentence."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bipolar._tools.files import locked
from bipolar.lab.data import load_text
from bipolar.lab.errors import UsageError
from bipolar.lab.sampling import sample
from bipolar.lab.training.checkpoints import Checkpoints
from bipolar.lab.training.guard import Guard
from bipolar.lab.training.journal import read_metrics
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.runs import load_config
from bipolar.lab.training.text import TextConfig, TextModel, TextTask, evaluate_text, load_model, train_text

TEXT = "the quick brown fox jumps over the lazy dog. " * 200
MODEL = TextModel(num_layers=4, hidden_size=16, dropout=0.1, recurrent_dropout=0.1, block_dropout=0.1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "fox.txt"
    path.write_text(TEXT)
    return path


def config(corpus: Path, out: Path, **options: Any) -> TextConfig:
    defaults: dict[str, Any] = {"batch_size": 4, "window": 10, "lr": 5e-3, "checkpoint_every": 7, "validate_every": 1}
    cpu = Machine(accelerator="cpu")
    return TextConfig(str(corpus), **({"model": MODEL, "machine": cpu, "out": out} | defaults | options))


def metrics(run: Path) -> list[dict[str, Any]]:
    """Without the times."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in read_metrics(run)]


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    result = train_text(config(corpus, out, max_steps=450))
    assert result["status"] == "finished"
    return out


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
    assert set(stored) == {"task", "config", "vocabulary", "text", "commit", "machine", "versions"}
    assert len(list((finished / "checkpoints").glob("step-*.pt"))) == 2
    assert (finished / "checkpoints/best.pt").exists()
    assert list((finished / "tensorboard").glob("events*"))


def test_without_lsuv_the_stack_keeps_its_random_start(corpus: Path, tmp_path: Path) -> None:
    text = load_text(str(corpus), tmp_path, (0.9, 0.05, 0.05))

    def start(lsuv: Any) -> torch.Tensor:
        torch.manual_seed(1)
        task = TextTask(config(corpus, tmp_path, model=dataclasses.replace(MODEL, lsuv=lsuv)), text)
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
    one, two, other = ("".join(sample(model, "the ", 40, 3.0, seed)) for seed in (1, 1, 2))
    assert one == two != other
    assert len(one) == 40
    assert "".join(sample(model, "the ", 5, 0.0, 1)) == "".join(sample(model, "the ", 5, 0.0, 2))
    with pytest.raises(UsageError, match="the symbol 'é' is not in the vocabulary"):
        list(sample(model, "é", 5, 1.0, 1))
    with pytest.raises(UsageError, match="--temperature -1"):
        list(sample(model, "a", 5, -1.0, 1))
    for options, message in (
        (("", 5, 1.0, 1), "--prompt: expected at least one"),
        (("a", -5, 1.0, 1), "--length -5"),
        (("a", 5, math.nan, 1), "--temperature nan"),
        (("a", 5, 1.0, -1), "--seed -1"),
    ):
        with pytest.raises(UsageError, match=message):
            sample(model, *options)
    likeliest = "".join(sample(model, "the ", 20, 0.0, 1))
    assert "".join(sample(model, "the ", 20, 1e-40, 1)) == likeliest


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bipolar.lab", *arguments]


def options_of(settings: TextConfig) -> list[str]:
    """A configuration as the options of the command."""
    values = {f"model.{name}": value for name, value in dataclasses.asdict(settings.model).items()}
    values |= {name: getattr(settings, name) for name in ("data", "out", "max_steps", "batch_size", "window", "lr")}
    values |= {name: getattr(settings, name) for name in ("checkpoint_every", "validate_every", "log_every")}
    values |= {name: getattr(settings.machine, name) for name in ("accelerator", "devices")}
    given = {name: value for name, value in values.items() if value is not None and not isinstance(value, bool)}
    return [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def killed_when_written(arguments: list[str], metrics_file: Path, size: int | None) -> None:
    """Runs a command, killing it once the metrics have a size: wherever it is at that moment."""
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        while size is not None and not (metrics_file.exists() and metrics_file.stat().st_size >= size):
            assert process.poll() is None
            os.sched_yield()
        if size is not None:
            process.kill()
        assert process.wait() == (0 if size is None else -signal.SIGKILL)


class KilledError(Exception):
    """Raised in the middle of a step: what kill -9 leaves behind, without a process."""


def interrupt_at(step: int, what: Callable[[], object]) -> Callable[[Guard, int, float], Any]:
    original = Guard.check

    def check(self: Guard, at: int, loss: float) -> Any:
        if at == step:
            what()
        return original(self, at, loss)

    return check


def die() -> None:
    raise KilledError


def ask_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class TestResume:
    def test_killed_at_any_moment_and_resumed_it_is_the_run_left_alone(
        self, corpus: Path, finished: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "killed"
        whole = (finished / "metrics.jsonl").stat().st_size
        arguments = command("train", "text", *options_of(config(corpus, out, max_steps=450)))
        for size in (whole // 7, whole // 2, None):
            killed_when_written(arguments, out / "metrics.jsonl", size)
            arguments = command("train", "text", "--resume", str(out))
        assert metrics(out) == metrics(finished)

    def test_ctrl_c_saves_and_stops(self, corpus: Path, finished: Path, tmp_path: Path) -> None:
        out = tmp_path / "stopped"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Guard, "check", interrupt_at(32, ask_to_stop))  # heard in the next step
            assert train_text(config(corpus, out, max_steps=450))["status"] == "stopped"
        assert (out / "checkpoints/step-000000033.pt").exists()
        train_text(TextConfig(resume=out))
        assert metrics(out) == metrics(finished)

    @pytest.mark.parametrize("cell", ["stack", "lstm"])
    def test_killed_resumed_stopped_and_resumed(self, corpus: Path, tmp_path: Path, cell: Any) -> None:
        """Rows of metrics are cut off where they will be written again; torch's own dropout goes on, too."""
        model = TextModel(2, 8, cell=cell, dropout=0.3)
        whole, broken = (
            config(corpus, tmp_path / name, model=model, max_steps=60, checkpoint_every=20) for name in ("a", "b")
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

    def test_metrics_that_were_shortened_in_between(self, corpus: Path, tmp_path: Path) -> None:
        out = tmp_path / "run"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Guard, "check", interrupt_at(33, ask_to_stop))
            train_text(config(corpus, out, max_steps=60))
        (out / "metrics.jsonl").write_bytes(b"")
        train_text(TextConfig(resume=out))
        assert b"\0" not in (out / "metrics.jsonl").read_bytes()
        assert [row["step"] for row in metrics(out) if "train_bpc" in row] == [40, 50, 60]

    @pytest.mark.parametrize("damage", ["cut", "flip"])
    def test_a_broken_checkpoint_is_noticed(
        self, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
    ) -> None:
        whole, broken = tmp_path / "whole", tmp_path / "broken"
        train_text(config(corpus, whole, max_steps=31))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Guard, "check", interrupt_at(23, ask_to_stop))
            train_text(config(corpus, broken, max_steps=31))
        self.damage(broken / "checkpoints/step-000000024.pt", damage)
        train_text(TextConfig(resume=broken))
        assert "step-000000024.pt: this checkpoint is broken" in capsys.readouterr().err
        assert metrics(broken) == metrics(whole)

    def damage(self, path: Path, how: str = "cut") -> None:
        content = bytearray(path.read_bytes())
        if how == "cut":
            content = content[: len(content) // 2]
        else:
            content[len(content) // 2] ^= 1
        path.write_bytes(content)

    def test_where_no_checkpoint_is_left(
        self, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "run"
        train_text(config(corpus, out, max_steps=21))
        for path in (out / "checkpoints").glob("step-*.pt"):
            self.damage(path)
        state = Checkpoints(out / "checkpoints").last()
        assert state is not None
        assert state["loop"]["step"] == 21  # the best one
        self.damage(out / "checkpoints/best.pt")
        capsys.readouterr()
        assert Checkpoints(out / "checkpoints").best() is None
        assert "best.pt: this checkpoint is broken; the last one takes its place" in capsys.readouterr().err
        before = (out / "metrics.jsonl").read_bytes()
        with pytest.raises(UsageError, match="there is no checkpoint that is not broken"):
            train_text(TextConfig(resume=out))
        assert (out / "metrics.jsonl").read_bytes() == before

    def test_a_run_goes_on_as_it_was_configured(self, corpus: Path, finished: Path, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"--max-steps, --lr: --resume goes on with a run as it was configured"):
            train_text(TextConfig(resume=finished, max_steps=900, lr=0.1))

    @pytest.mark.parametrize("change", [("q", "Q"), ("q", "qu"), ("q", "k")])
    def test_another_text_is_noticed(self, corpus: Path, tmp_path: Path, change: tuple[str, str]) -> None:
        text = tmp_path / "text.txt"
        text.write_text(TEXT)
        train_text(config(text, tmp_path / "run", max_steps=2))
        text.write_text(TEXT.replace(*change))
        for again in (
            lambda: train_text(TextConfig(resume=tmp_path / "run")),
            lambda: evaluate_text(tmp_path / "run", "test"),
        ):
            with pytest.raises(UsageError, match=r"this is not the text that .*run began with"):
                again()

    def test_one_process_at_a_time(self, corpus: Path, tmp_path: Path) -> None:
        with locked(tmp_path / "run"), pytest.raises(FileExistsError, match="another process is at work here"):
            train_text(config(corpus, tmp_path / "run", max_steps=2))
        train_text(config(corpus, tmp_path / "run", max_steps=2))

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("[]", "not the directory of a run"),
            ('{"task": "text", "config": {"colour": 1}}', "config.json: not as it was written"),
            ('{"task": "images", "config": {}}', "a run of images, not of text"),
        ],
    )
    def test_a_configuration_that_is_not_one(self, tmp_path: Path, content: str, message: str) -> None:
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(UsageError, match=message):
            train_text(TextConfig(resume=tmp_path))

    def test_a_run_is_not_overwritten_by_another(self, corpus: Path, tmp_path: Path) -> None:
        out = tmp_path / "taken"
        train_text(config(corpus, out, max_steps=2))
        with pytest.raises(UsageError, match="there is another run here; --resume"):
            train_text(config(corpus, out, max_steps=2, lr=1e-4))

    def test_resuming_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="not the directory of a run"):
            train_text(TextConfig(resume=tmp_path))


def test_two_processes_are_one_stop_as_one_and_go_on(corpus: Path, tmp_path: Path) -> None:
    """The same global batch, without dropout; two processes get SIGTERM in between, and are resumed."""
    model = TextModel(4, 16, dropout=0.0)
    one, two = (
        config(corpus, tmp_path / str(n), model=model, max_steps=300, machine=Machine(accelerator="cpu", devices=n))
        for n in (1, 2)
    )
    assert one.out is not None
    assert two.out is not None
    train_text(one)
    with subprocess.Popen(
        command("train", "text", *options_of(two)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        while not (two.out / "metrics.jsonl").exists() or not (two.out / "metrics.jsonl").stat().st_size:
            assert process.poll() is None
            os.sched_yield()
        process.terminate()  # only one of the two
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error.decode()
    assert not (two.out / "result.json").exists()
    subprocess.run(command("train", "text", "--resume", str(two.out)), check=True, capture_output=True, timeout=240)
    alone, together = metrics(one.out), metrics(two.out)
    assert len(alone) == len(together) > 30
    for a, b in zip(alone, together, strict=True):
        assert a.keys() == b.keys()
        for name, value in a.items():
            # rounding grows with the steps: the first fifty, and the gradients below, tell
            assert b[name] == pytest.approx(value, rel=1e-6 if a["step"] <= 50 else 1e-2, abs=1e-6)


def test_the_gradients_of_two_processes_are_those_of_one(corpus: Path, tmp_path: Path) -> None:
    """Adam's first moment after one step is a tenth of the gradient."""
    moments = []
    for devices in (1, 2):
        settings = config(
            corpus,
            tmp_path / str(devices),
            model=TextModel(4, 16, dropout=0.0),
            max_steps=1,
            machine=Machine(accelerator="cpu", devices=devices),
        )
        if devices == 1:
            train_text(settings)
        else:
            subprocess.run(
                command("train", "text", *options_of(settings)), check=True, capture_output=True, timeout=240
            )
        state = Checkpoints(tmp_path / str(devices) / "checkpoints").last()
        assert state is not None
        moments.append([entry["exp_avg"] for entry in state["optimizer"]["state"].values()])
    for ours, theirs in zip(*moments, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6 * float(ours.abs().max()))


class TestRecipe:
    def test_the_papers_defaults(self) -> None:
        config, ptb, text8 = TextConfig(), TextConfig().recipe, TextConfig("text8").recipe
        assert (ptb.lr, config.batch_size, config.window, ptb.validate_every, config.max_epochs) == (
            2e-4,
            128,
            50,
            4,
            200,
        )
        assert (text8.lr, text8.validate_every, text8.rates.dropout, text8.rates.block_dropout) == (5e-5, 1, 0.01, 0.01)
        assert TextConfig("text8", TextModel(dropout=0.2)).recipe.rates.dropout == 0.2

    @pytest.mark.parametrize(("halve_from", "halved"), [(4, [1, 1, 1, 2, 2, 4]), (2, [1, 2, 2, 4, 4, 8])])
    def test_the_rate_is_halved_when_validation_does_not_improve(
        self, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halve_from: int, halved: list[int]
    ) -> None:
        settings = config(corpus, tmp_path, halve_from=halve_from, validate_every=3)
        task = TextTask(settings, load_text(str(corpus), tmp_path))
        task.setup(settings.machine.fabric())
        values = iter([3.0, 3.0, 2.0, 2.5, 2.4, 2.4])
        monkeypatch.setattr(task, "evaluate", lambda _: next(values))
        rows = [task.after_epoch(epoch, final=False) for epoch in range(18)]
        assert [epoch for epoch, row in enumerate(rows) if row is not None] == [2, 5, 8, 11, 14, 17]
        assert [row["lr"] for row in rows if row is not None] == [5e-3 / factor for factor in halved]

    def test_a_configuration_survives_its_file(self, finished: Path, corpus: Path) -> None:
        loaded = load_config(TextConfig, finished)
        assert loaded.out == finished
        given = config(corpus, finished, max_steps=450)
        assert loaded.recipe == given.recipe
        assert dataclasses.replace(loaded, halve_from=None) == given  # a file holds the defaults, too

    def test_budgets_of_other_cells(self, corpus: Path, tmp_path: Path) -> None:
        for cell in ("stack", "lstm", "gru", "rnn"):
            model = TextConfig(model=TextModel(2, cell=cell, params=20_000)).build("abcdef")
            assert abs(model.num_parameters / 20_000 - 1) < 0.05
        settings = TextConfig(str(corpus), TextModel(2, cell="lstm", params=20_000))
        assert settings.directory == Path("runs/fox-2x20000-lstm-1")

    @pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
    def test_other_cells_can_be_evaluated_and_sampled(self, corpus: Path, tmp_path: Path, cell: Any) -> None:
        result = train_text(config(corpus, tmp_path, model=TextModel(2, 16, cell=cell, dropout=0.2), max_steps=20))
        assert result["status"] == "finished"
        assert evaluate_text(tmp_path, "test")["test_bpc"] == pytest.approx(result["test_bpc"], rel=1e-6)
        assert len(list(sample(load_model(tmp_path), "the ", 10, 1.0, 1))) == 10

    def task(self, corpus: Path, **options: Any) -> TextTask:
        settings = config(corpus, Path("unused"), model=TextModel(4, 16, dropout=0.0), **options)
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
            ({"model": TextModel(2, 8, dropout=1.5)}, "--model.dropout: .*1.5"),
            ({"model": TextModel(0, 8)}, "--model.num-layers: .*0"),
            ({"model": TextModel(2, 0)}, "--model.hidden-size: .*0"),
            ({"model": TextModel(2, 8, skip_every=0)}, "--model.skip-every: .*0"),
            ({"model": TextModel(2, 8, gamma=2.0)}, "--model.gamma: .*2"),
            ({"model": TextModel(2, 8, params=0.5)}, "--model.params: expected at least 1, got 0.5"),
            ({"model": TextModel(2, 8, gradient="after skip")}, "--model.gradient: "),
            ({"model": TextModel(2, 8, cell="lstm", block_dropout=0.1)}, "--model.recurrent-dropout, block-dropout"),
            ({"model": TextModel(2, 8, cell="lstm", nonlinearity="relu")}, "--model.nonlinearity: torch's own 'lstm'"),
            ({"model": TextModel(2, 8, cell="gru", gradient="not through time")}, "--model.gradient: torch's own"),
        ],
    )
    def test_bad_arguments(self, corpus: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            train_text(config(corpus, tmp_path / "run", **options))


class TestGuard:
    def test_the_three_reasons(self) -> None:
        def after(losses: list[float]) -> str | None:
            guard = Guard(uniform=5.0, patience=50)
            for step, loss in enumerate(losses, 1):
                found = guard.check(step, loss)
                if found:
                    return f"{found.step}: {found.reason}"
            return None

        assert after([4.0] * 100) is None
        assert after([6.0] * 49 + [1.0] * 51) == "50: the loss is no better than a uniform guess after 50 steps"
        assert after([4.0, float("nan")]) == "2: the loss is not finite"
        assert after([4.0, 51.0]) == "2: the loss is more than 10 times that of a uniform guess"

    def test_a_run_that_diverges_ends_cleanly(self, corpus: Path, tmp_path: Path) -> None:
        result = train_text(config(corpus, tmp_path / "run", lr=100.0, max_steps=400, patience=300))
        assert result["status"] == "did not converge"
        assert result["reason"].startswith("the loss is")
        assert json.loads((tmp_path / "run/result.json").read_text())["status"] == "did not converge"
        assert metrics(tmp_path / "run")[-1]["step"] == result["step"]

    @pytest.mark.parametrize("split", ["valid", "test"])
    def test_an_evaluation_that_is_not_finite(
        self, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str
    ) -> None:
        original = TextTask.evaluate
        monkeypatch.setattr(TextTask, "evaluate", lambda t, s: math.nan if s == split else original(t, s))
        result = train_text(config(corpus, tmp_path / "run", max_steps=5))
        assert result["status"] == "did not converge"
        assert result["reason"] == f"the loss is not finite ({split}_bpc)"
        assert json.loads((tmp_path / "run/result.json").read_text()) == result


def test_a_directory_that_cannot_be_written_to(corpus: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = subprocess.run(
        command("train", "text", "--data", str(corpus), "--out", str(blocked / "run"), "--batch-size", "4"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "Not a directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk(corpus: Path, tmp_path: Path) -> None:
    """A limit on the size of files, within the second checkpoint's reach, is to a process what a full disk is."""
    settings = config(corpus, tmp_path / "run", model=TextModel(4, 64, dropout=0.0), max_steps=20)
    limited = ["bash", "-c", 'ulimit -f 100; exec "$@"', "bash", *command("train", "text", *options_of(settings))]
    done = subprocess.run(limited, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "cannot write" in done.stderr
    assert "What was saved before is still there" in done.stderr
    assert not list((tmp_path / "run/checkpoints").glob("*.pt*"))
