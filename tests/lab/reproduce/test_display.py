"""The progress display: what it costs, and what it says."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bipolar.lab.paper import ITEMS
from bipolar.lab.reproduce import cost
from bipolar.lab.reproduce.display import Display, Reported, estimate, reported
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.listing import listing, remaining
from bipolar.lab.reproduce.reproduction import Reproduction
from bipolar.lab.reproduce.trials import Trial, trial_of
from bipolar.lab.training.images import ImageConfig, ImageModel
from bipolar.lab.training.text import TextConfig, TextModel

CONFIG = TextConfig("python-docs", TextModel(2, 8), max_steps=100)


def test_nothing_is_trained_for_an_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr(torch.Tensor, "backward", refuse)
    monkeypatch.setattr(torch.optim.Optimizer, "__init__", refuse)
    work = Reproduction([ITEMS["table5"]], "small", tmp_path)
    display = Display(list(work.first_trials()))
    assert all(guess > 0 for guess in display.guesses)
    assert remaining(work).startswith("42 runs to go: about ")
    assert "table5" in listing(work)


def test_a_trial_reports_by_its_metrics(tmp_path: Path) -> None:
    trial = trial_of(CONFIG, tmp_path)
    assert reported(trial, 100) == Reported(0.0, 0.0)
    write(trial, step=25, seconds=5.0)
    assert reported(trial, 100) == Reported(0.25, 5.0)
    (trial.directory / "config.json").write_text(json.dumps({"config": CONFIG.to_json()}))
    (trial.directory / "result.json").write_text("{}")
    assert reported(trial, 100) == Reported(1.0, 5.0)  # it may have ended early


def write(trial: Trial, **row: float) -> None:
    trial.directory.mkdir(parents=True, exist_ok=True)
    (trial.directory / "metrics.jsonl").write_text(json.dumps(row) + "\n")


def test_times_are_those_of_the_runs_and_correct_the_guesses_about_the_others() -> None:
    trials = [Reported(1.0, 30.0), Reported(0.5, 10.0), Reported(0.0, 0.0)]
    assert estimate(trials, [10.0, 20.0, 7.0]) == pytest.approx([30.0, 20.0, 14.0])
    assert estimate(trials[2:], [7.0]) == [7.0]


def test_it_says_what_runs_and_how_long_the_rest_takes(tmp_path: Path) -> None:
    trials = [trial_of(CONFIG, tmp_path), trial_of(TextConfig("python-docs", TextModel(3, 8), max_steps=100), tmp_path)]
    display = Display(trials, every=1e9)
    with display:
        assert "0 of 2 runs done; now none; 0 %" in display._show()
        write(trials[0], step=50, seconds=5.0)
        (trials[0].directory / "config.json").write_text("{}")
        said = display._show()
    name = trials[0].directory.name.rpartition("-")[0]
    assert f"0 of 2 runs done; now {name}; " in said
    assert " left" in said


def test_every_training_has_an_estimate() -> None:
    for item in ITEMS.values():
        if isinstance(item, Training):
            config = next(iter(item.runs("quick").values()))
            assert cost.speed().seconds(config) > 0


@pytest.mark.parametrize(
    "model",
    [
        ImageModel("wrn", 10, 1, activation="belu", norm="batch", dropout=0.0, pattern="halves"),
        ImageModel("orn", 10, 1, activation="elu", lsuv="second_moment", at="activation"),
        ImageModel("conv", widen_factor=1, activation="elu", norm="batch", skip=True, whiten=True, head=0.1),
    ],
    ids=lambda model: model.network,
)
def test_what_counts_is_the_arithmetic_of_the_network_itself(model: ImageModel) -> None:
    """Though it is counted once for all networks of its size."""
    config = ImageConfig("digits", model, batch_size=7)
    assert cost.step_of(config).flops == cost.PASSES * 7 * cost._flops(model, channels=1, side=8) > 0
