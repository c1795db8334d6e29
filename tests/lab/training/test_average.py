"""The average of weights: its formula, evaluation in their place, what counts, and resuming to the last bit."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bipolar
from bipolar.lab.errors import UsageError
from bipolar.lab.training.average import Average
from bipolar.lab.training.checkpoints import best_of
from bipolar.lab.training.guard import Guard
from bipolar.lab.training.images import ImageConfig, ImageModel, evaluate_images, train_images
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.text import TextConfig, TextTask, evaluate_text, load_model, train_text
from bipolar.lab.training.update import Update
from tests.helpers.interruptions import KilledError, die, interrupt_at
from tests.helpers.text_runs import metrics, text_config

AVERAGED = Update(recipe="fast", average=0.2)


def a_model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()


def steps_of(model: nn.Module, average: Average, steps: int) -> list[dict[str, torch.Tensor]]:
    """The weights of a random walk, after each of its steps."""
    seen = []
    for step in range(1, steps + 1):
        model(torch.randn(5, 3, dtype=torch.double))  # batch norm counts its batches
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        average.update(step)
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
    return seen


class TestFormula:
    @pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 1.0])
    def test_the_sum_of_all_steps_by_their_weights(self, share: float) -> None:
        model = a_model()
        average = Average(model, share)
        seen = steps_of(model, average, 40)
        taken = [1 / max(1.0, share * step) for step in range(1, 41)]
        left = [*itertools.accumulate(reversed([1 - part for part in taken]), lambda a, b: a * b)]
        weights = [part * rest for part, rest in zip(taken, [*reversed(left[:-1]), 1.0], strict=True)]
        assert sum(weights) == pytest.approx(1)
        for name, value in average.state_dict().items():
            if value.is_floating_point():
                expected = sum(weight * step[name] for weight, step in zip(weights, seen, strict=True))
                torch.testing.assert_close(value, expected)
            else:
                assert value == seen[-1][name] == 40

    def test_the_whole_run_is_its_mean_and_the_first_steps_are_themselves(self) -> None:
        model = a_model()
        mean, late = Average(model, 1.0), Average(model, 0.05)
        seen = []
        for step in range(1, 21):
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(torch.randn_like(p))
            mean.update(step)
            late.update(step)
            seen.append(model.state_dict()["0.weight"].clone())
            assert torch.equal(late.state_dict()["0.weight"], seen[-1])  # up to step 20 the horizon is one step
        torch.testing.assert_close(mean.state_dict()["0.weight"], torch.stack(seen).mean(0))

    def test_in_place_of_the_weights(self) -> None:
        model = a_model().eval()
        average = Average(model, 0.5)
        steps_of(model, average, 9)
        model.eval()
        twin = a_model().eval()
        twin.load_state_dict(average.state_dict())
        x = torch.randn(7, 3, dtype=torch.double)
        before = model(x)
        with average.in_place():
            assert torch.equal(model(x), twin(x))
        assert torch.equal(model(x), before)
        with pytest.raises(KilledError), average.in_place():
            die()
        assert torch.equal(model(x), before)
        assert not torch.equal(model(x), twin(x))


class TestText:
    def test_killed_resumed_and_what_counts(self, corpus: Path, tmp_path: Path) -> None:
        whole, run = tmp_path / "whole", tmp_path / "run"
        config = text_config(corpus, whole, update=AVERAGED, lr=0.02, max_steps=60)
        result = train_text(config, show=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Guard, "check", interrupt_at(37, die))
            with pytest.raises(KilledError):
                train_text(replace(config, out=run), show=False)
        again = train_text(TextConfig(resume=run), show=False)
        assert metrics(run) == metrics(whole)
        assert again | {"seconds": 0} == result | {"seconds": 0}
        (row,) = [row for row in metrics(run) if "valid_bpc" in row]
        assert row["averaged_valid_bpc"] != row["valid_bpc"]
        assert result["best_valid_bpc"] == min(row["averaged_valid_bpc"], row["valid_bpc"])
        assert (result["weights"] == "averaged") is (row["averaged_valid_bpc"] < row["valid_bpc"])

    @pytest.mark.parametrize("better", ["averaged", "raw"])
    def test_the_better_one_is_tested_evaluated_and_exported(
        self, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, better: str
    ) -> None:
        """Whichever the validation prefers; here it is told to prefer one."""
        evaluate, values = TextTask.evaluate, iter([2.0, 1.0] if better == "averaged" else [1.0, 2.0])
        with monkeypatch.context() as patch:
            patch.setattr(TextTask, "evaluate", lambda t, s: next(values) if s == "valid" else evaluate(t, s))
            result = train_text(text_config(corpus, tmp_path / "run", update=AVERAGED, max_steps=30), show=False)
        assert (result["weights"], result["best_valid_bpc"]) == (better, 1.0)
        assert evaluate_text(tmp_path / "run", "test")["test_bpc"] == pytest.approx(result["test_bpc"], rel=1e-6)
        saved = best_of(tmp_path / "run")
        expected = saved["average" if better == "averaged" else "model"]
        for model in (load_model(tmp_path / "run"), bipolar.load(tmp_path / "run")):
            assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
        assert not torch.equal(saved["average"]["decoder.weight"], saved["model"]["decoder.weight"])

    def test_training_goes_on_with_the_raw_weights(self, corpus: Path, tmp_path: Path) -> None:
        """After the validation at the end of an epoch, of 20 steps here."""
        losses = []
        for name, update in (("plain", replace(AVERAGED, average=None)), ("averaged", AVERAGED)):
            options: dict[str, Any] = {"batch_size": 16, "window": 25, "max_steps": 30, "log_every": 1}
            train_text(text_config(corpus, tmp_path / name, update=update, **options), show=False)
            rows = metrics(tmp_path / name)
            assert [row["step"] for row in rows if "valid_bpc" in row] == [20, 30]
            losses.append([row["train_bpc"] for row in rows if "train_bpc" in row])
        assert losses[0] == losses[1]


def test_images(tmp_path: Path) -> None:
    """With batch norm, whose statistics are averaged, too."""
    config = ImageConfig(
        data="digits",
        model=ImageModel(depth=10, widen_factor=1, activation="elu", dropout=0.1, norm="batch"),
        machine=Machine(accelerator="cpu"),
        update=AVERAGED,
        batch_size=32,
        train_images=320,
        test_images=100,
        max_epochs=2,
        checkpoint_every=3,
    )
    result = train_images(replace(config, out=tmp_path / "whole"), show=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guard, "check", interrupt_at(14, die))
        with pytest.raises(KilledError):
            train_images(replace(config, out=tmp_path / "run"), show=False)
    train_images(ImageConfig(resume=tmp_path / "run"), show=False)
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    row = [row for row in metrics(tmp_path / "run") if "train_error" in row][-1]
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (stored["weights"], stored["test_error"]) == ("averaged", result["test_error"])
    assert (stored["test_error"], stored["raw_test_error"]) == (row["test_error"], row["raw_test_error"])
    found = evaluate_images(tmp_path / "run", "test")
    assert found == pytest.approx({"test_error": result["test_error"], "test_loss": result["test_loss"]})
    expected = best_of(tmp_path / "run")["average"]
    assert all(torch.equal(v, expected[name]) for name, v in bipolar.load(tmp_path / "run").state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"average": 0.1}, "--average 0.1: the paper's recipe has no such setting"),
        ({"recipe": "fast", "average": 0.0}, "--average 0.0: expected a share of the steps"),
        ({"recipe": "fast", "average": 1.5}, "--average 1.5: expected a share of the steps"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TextConfig(update=Update(**options)).check()
