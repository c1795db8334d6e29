"""The guard: runs that diverge end with a reason."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bipolar.lab.errors import UsageError
from bipolar.lab.training.guard import Guard, is_slow
from bipolar.lab.training.text import TextConfig, TextModel, TextTask, train_text
from bipolar.lab.training.text.rival_options import RivalOptions
from bipolar.lab.training.update import Update
from tests.helpers.text_runs import metrics, text_config


def test_the_reasons() -> None:
    def after(losses: list[float]) -> str | None:
        guard = Guard(uniform=5.0, patience=50)
        for step, loss in enumerate(losses, 1):
            found = guard.check(step, loss)
            if found:
                return f"{found.step}: {found.reason}"
        return None

    assert after([4.0] * 100) is None
    guess = "50: the loss is no better than a uniform guess after 50 steps"
    assert after([11.0] + [6.0] * 48 + [1.0] * 51) == f"{guess}, and was 2.2 times that"
    assert after([6.0] * 49 + [1.0] * 51) == guess.replace("50: ", "50: slow: ")
    assert after([4.0, float("nan")]) == "2: the loss is not finite"
    assert after([4.0, 51.0]) == "2: the loss is more than 10 times that of a uniform guess"


def test_a_run_that_goes_on_remembers_its_highest_loss() -> None:
    first, second = Guard(uniform=5.0, patience=50), Guard(uniform=5.0, patience=50)
    for step, loss in enumerate([11.0] + [6.0] * 30, 1):
        assert first.check(step, loss) is None
    second.load_state_dict(first.state_dict())
    found = second.check(50, 6.0)
    assert found is not None
    assert not is_slow(found.reason)


class TestRescue:
    """A step whose loss has exploded is not taken, and the state begins at zeros again, as often as was asked for."""

    @pytest.fixture
    def exploding(self, monkeypatch: pytest.MonkeyPatch) -> list[list[torch.Tensor]]:
        """Makes the losses of two windows explode; lists the weights before each window, and its carried state."""
        original, seen = TextTask.loss, list[list[torch.Tensor]]()

        def loss(task: TextTask, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            state = torch.zeros(()) if task.state is None else task.state.abs().sum()
            seen.append([*(p.detach().clone() for p in task.model.parameters()), state])
            factor = {3: math.inf, 5: 1e4}.get(len(seen) - 1, 1.0)
            loss, bpc = original(task, index)
            return loss * factor, bpc * factor

        monkeypatch.setattr(TextTask, "loss", loss)
        return seen

    def config(self, corpus: Path, out: Path, rescues: int | None) -> TextConfig:
        update = Update(recipe="fast", rescues=rescues)
        return text_config(corpus, out, max_steps=8, update=update, log_every=1, checkpoint_every=100)

    def test_the_run_goes_on(self, corpus: Path, tmp_path: Path, exploding: list[list[torch.Tensor]]) -> None:
        result = train_text(self.config(corpus, tmp_path / "run", 2))
        assert (result["status"], result["rescued"]) == ("finished", 2)
        for before, after in itertools.pairwise(range(8)):
            *weights, _ = exploding[before]
            *moved, state = exploding[after]
            exploded = before in (3, 5)
            assert all(torch.equal(a, b) for a, b in zip(weights, moved, strict=True)) is exploded
            assert (float(state) == 0) is exploded
        rows = [row for row in metrics(tmp_path / "run") if "exploded_bpc" in row]
        assert [row["step"] for row in rows] == [4, 6]
        trained = [row["step"] for row in metrics(tmp_path / "run") if "train_bpc" in row]
        assert trained == [1, 2, 3, 5, 7, 8]  # a rescued step has a line of its own alone

    @pytest.mark.parametrize(
        ("rescues", "step", "reason"),
        [
            (None, 4, "the loss is not finite"),
            (1, 6, "the loss is more than 10 times that of a uniform guess, after 1 rescues"),
        ],
    )
    def test_one_too_many_ends_it(
        self,
        corpus: Path,
        tmp_path: Path,
        exploding: list[list[torch.Tensor]],
        rescues: int | None,
        step: int,
        reason: str,
    ) -> None:
        result = train_text(self.config(corpus, tmp_path / "run", rescues))
        assert (result["status"], result["step"]) == ("did not converge", step)
        assert result["reason"].startswith(reason)

    def test_an_infinite_gradient_counts(self, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        original, calls = TextTask.loss, list[int]()

        def loss(task: TextTask, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            calls.append(index)
            value, bpc = original(task, index)
            if len(calls) == 4:
                value.register_hook(lambda gradient: gradient * math.inf)
            return value, bpc

        monkeypatch.setattr(TextTask, "loss", loss)
        result = train_text(self.config(corpus, tmp_path / "run", 1))
        assert (result["status"], result["rescued"]) == ("finished", 1)

    def test_what_batch_norm_saw_is_forgotten(
        self, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original, calls = TextTask.loss, list[int]()

        def loss(task: TextTask, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            calls.append(index)
            if len(calls) == 4 and task.state is not None:
                task.state = task.state * math.inf
            return original(task, index)

        monkeypatch.setattr(TextTask, "loss", loss)
        model = TextModel(1, 16, cell="indrnn", rival=RivalOptions(batch_norm=True))
        result = train_text(replace(self.config(corpus, tmp_path / "run", 1), model=model))
        assert (result["status"], result["rescued"]) == ("finished", 1)

    def test_three_in_a_row_are_the_fault_of_the_weights(self) -> None:
        guard = Guard(5.0, 50, rescues=100)
        assert [guard.rescue(math.inf) for _ in range(4)] == [True, True, True, False]
        found = guard.check(4, math.inf)
        assert found is not None
        assert found.reason == "the loss is not finite, after 3 rescues"
        again = Guard(5.0, 50, rescues=100)
        assert [again.rescue(loss) for loss in (60.0, 60.0, 60.0, 4.0, 60.0)] == [True, True, True, False, True]

    def test_a_run_that_goes_on_remembers_them(self) -> None:
        first, second = Guard(5.0, 50, rescues=1), Guard(5.0, 50, rescues=1)
        assert first.rescue(math.inf)
        assert not first.rescue(math.inf)
        assert not Guard(5.0, 50, rescues=1).rescue(49.0)
        second.load_state_dict(first.state_dict())
        assert not second.rescue(math.inf)


def test_a_run_that_diverges_ends_cleanly(corpus: Path, tmp_path: Path) -> None:
    result = train_text(text_config(corpus, tmp_path / "run", lr=100.0, max_steps=400, patience=300))
    assert result["status"] == "did not converge"
    assert result["reason"].startswith("the loss is")
    assert json.loads((tmp_path / "run/result.json").read_text())["status"] == "did not converge"
    with pytest.raises(UsageError, match="this run did not converge, and a longer one would begin as it did"):
        train_text(TextConfig(resume=tmp_path / "run", max_steps=800))
    assert metrics(tmp_path / "run")[-1]["step"] == result["step"]


@pytest.mark.parametrize("split", ["valid", "test"])
def test_an_evaluation_that_is_not_finite(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    original = TextTask.evaluate
    monkeypatch.setattr(TextTask, "evaluate", lambda t, s: math.nan if s == split else original(t, s))
    result = train_text(text_config(corpus, tmp_path / "run", max_steps=5))
    assert result["status"] == "did not converge"
    assert result["reason"] == f"the loss is not finite ({split}_bpc)"
    assert json.loads((tmp_path / "run/result.json").read_text()) == result
