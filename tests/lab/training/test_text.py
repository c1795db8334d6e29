"""Training: it learns, it resumes to the last bit, and it fails with a sentence."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bipolar.lab.data import DataError, load_text
from bipolar.lab.models import load_model, sample
from bipolar.lab.training.checkpoints import Checkpoints
from bipolar.lab.training.guard import Guard
from bipolar.lab.training.loop import Machine, read_metrics
from bipolar.lab.training.text import TextConfig, TextModel, TextTask, evaluate_run, load_config, train_text

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
    assert set(stored) == {"task", "config", "vocabulary", "commit", "machine", "versions"}
    assert len(list((finished / "checkpoints").glob("step-*.pt"))) == 2
    assert (finished / "checkpoints/best.pt").exists()
    assert list((finished / "tensorboard").glob("events*"))


def test_evaluation_and_sampling(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    assert evaluate_run(finished, "test")["test_bpc"] == pytest.approx(result["test_bpc"], rel=1e-6)
    with pytest.raises(DataError, match="--split dev: expected one of train, valid, test"):
        evaluate_run(finished, "dev")
    model = load_model(finished)
    one, two, other = ("".join(sample(model, "the ", 40, 3.0, seed)) for seed in (1, 1, 2))
    assert one == two != other
    assert len(one) == 40
    assert "".join(sample(model, "the ", 5, 0.0, 1)) == "".join(sample(model, "the ", 5, 0.0, 2))
    with pytest.raises(DataError, match="the symbol 'é' is not in the vocabulary"):
        list(sample(model, "é", 5, 1.0, 1))
    with pytest.raises(DataError, match="--temperature -1"):
        list(sample(model, "a", 5, -1.0, 1))
    with pytest.raises(DataError, match="--prompt: expected at least one"):
        list(sample(model, "", 5, 1.0, 1))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bipolar.lab", *arguments]


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    while not path.exists():
        assert process.poll() is None
        os.sched_yield()


class TestResume:
    def test_killed_at_any_moment_and_resumed_it_is_the_run_left_alone(
        self, corpus: Path, finished: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "killed"
        arguments = command(
            "train",
            "text",
            "--data",
            str(corpus),
            "--out",
            str(out),
            "--max-steps",
            "450",
            "--batch-size",
            "4",
            "--window",
            "10",
            "--lr",
            "5e-3",
            "--checkpoint-every",
            "7",
            "--validate-every",
            "1",
            "--model.num-layers",
            "4",
            "--model.hidden-size",
            "16",
            "--model.dropout",
            "0.1",
            "--model.recurrent-dropout",
            "0.1",
            "--model.block-dropout",
            "0.1",
            "--accelerator",
            "cpu",
        )
        environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
        for step in (70, 210, None):
            with subprocess.Popen(
                arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
            ) as process:
                if step is not None:
                    wait_for(out / "checkpoints" / f"step-{step:09d}.pt", process)
                    process.kill()
                assert process.wait() == (0 if step is None else -signal.SIGKILL)
            arguments = command("train", "text", "--resume", str(out))
        assert metrics(out) == metrics(finished)

    def test_ctrl_c_saves_and_stops(self, corpus: Path, finished: Path, tmp_path: Path) -> None:
        out = tmp_path / "stopped"

        def interrupt_at(step: int) -> None:
            original = Guard.check

            def check(self: Guard, at: int, loss: float) -> Any:
                if at == step:
                    os.kill(os.getpid(), signal.SIGINT)
                return original(self, at, loss)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Guard, "check", check)
                assert train_text(config(corpus, out, max_steps=450))["status"] == "stopped"

        interrupt_at(33)
        assert (out / "checkpoints/step-000000033.pt").exists()
        train_text(TextConfig(resume=out))
        assert metrics(out) == metrics(finished)

    def test_a_broken_checkpoint_is_noticed(
        self, corpus: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for damage in ("cut", "flip"):
            out = tmp_path / damage
            train_text(config(corpus, out, max_steps=21))
            last = max((out / "checkpoints").glob("step-*.pt"))
            content = bytearray(last.read_bytes())
            if damage == "cut":
                content = content[: len(content) // 2]
            else:
                content[len(content) // 2] ^= 1
            last.write_bytes(content)
            state = Checkpoints(out / "checkpoints").last()
            assert state is not None
            assert state["loop"]["step"] == 14
            assert "this checkpoint is broken" in capsys.readouterr().err

    def test_a_run_is_not_overwritten_by_another(self, corpus: Path, tmp_path: Path) -> None:
        out = tmp_path / "taken"
        train_text(config(corpus, out, max_steps=2))
        with pytest.raises(DataError, match="there is another run here; --resume"):
            train_text(config(corpus, out, max_steps=2, lr=1e-4))

    def test_resuming_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="not the directory of a run"):
            train_text(TextConfig(resume=tmp_path))


def test_two_processes_are_one(corpus: Path, tmp_path: Path) -> None:
    """The same global batch, without dropout."""
    runs = []
    for devices in (1, 2):
        out = tmp_path / str(devices)
        arguments = command(
            "train",
            "text",
            "--data",
            str(corpus),
            "--out",
            str(out),
            "--max-steps",
            "20",
            "--batch-size",
            "4",
            "--window",
            "10",
            "--lr",
            "5e-3",
            "--model.num-layers",
            "4",
            "--model.hidden-size",
            "16",
            "--log-every",
            "1",
            "--accelerator",
            "cpu",
            "--devices",
            str(devices),
        )
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=240)
        runs.append(metrics(out))
    one, two = runs
    assert len(one) == len(two) == 22
    for alone, together in zip(one, two, strict=True):
        assert alone.keys() == together.keys()
        for name, value in alone.items():
            assert together[name] == pytest.approx(value, rel=1e-6, abs=1e-6)


class TestRecipe:
    def test_the_papers_defaults(self) -> None:
        ptb, text8 = TextConfig().filled(), TextConfig("text8").filled()
        assert (ptb.lr, ptb.batch_size, ptb.window, ptb.validate_every, ptb.max_epochs) == (2e-4, 128, 50, 4, 200)
        assert (text8.lr, text8.validate_every, text8.model.dropout, text8.model.block_dropout) == (5e-5, 1, 0.01, 0.01)
        assert TextConfig("text8", TextModel(dropout=0.2)).filled().model.dropout == 0.2

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
        loaded = load_config(finished)
        assert loaded.out == finished
        assert dataclasses.replace(loaded, out=None) == dataclasses.replace(
            config(corpus, finished, max_steps=450).filled(), out=None
        )

    @pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
    def test_other_cells_under_the_same_loop(self, corpus: Path, tmp_path: Path, cell: Any) -> None:
        model = TextModel(2, 16, cell=cell)
        assert train_text(config(corpus, tmp_path / cell, model=model, max_steps=20))["status"] == "finished"

    def test_bad_arguments(self, corpus: Path, tmp_path: Path) -> None:
        for options, message in (
            ({"max_steps": 0}, "--max-steps 0: expected at least 1"),
            ({"lr": 0.0}, "--lr 0.0: expected a positive number"),
            ({"batch_size": 5000}, "less than one batch of 5000 x 10"),
        ):
            with pytest.raises(DataError, match=message):
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
