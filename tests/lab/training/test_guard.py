"""The guard: runs that diverge end with a reason."""

import json
import math
from pathlib import Path

import pytest

from bipolar.lab.errors import UsageError
from bipolar.lab.training.guard import Guard, is_slow
from bipolar.lab.training.text import TextConfig, TextTask, train_text
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
