"""Torture stays alive: a few trials of each piece, and the bookkeeping around them."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers.bad_trials import by_number
from tests.helpers.definition import by_definition
from torture import command
from torture.calls import in_one_piece
from torture.commands import Accident, Ended, Recipe, assert_safe, assert_same, found, run, undisturbed
from torture.hostile import KINDS as HOSTILE
from torture.pieces import PIECES
from torture.summary import summary
from torture.trials import Failure, Piece, Tally, random_of, repeat
from torture.trials import run as run_trials
from torture.watch import UnclearError, asked, assert_close

BAD = Piece("bad", "Trials that end in every way.", by_number, count=6, share=1, limit=2)


@pytest.mark.parametrize(("name", "trials"), [("calls", 40), ("folding", 5)])
def test_a_few_trials(name: str, trials: int, tmp_path: Path) -> None:
    for number in range(trials):
        (tmp_path / str(number)).mkdir()
        assert repeat(PIECES[name], 7, number, tmp_path / str(number))


@pytest.mark.parametrize("kind", ["model", "run", "archive", "images", "text"])
def test_a_hostile_file_of_each_kind(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    assert HOSTILE[kind][1](random_of(1, kind, 0), tmp_path / "inside")
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


@pytest.mark.long
def test_a_run_is_killed_and_resumed(tmp_path: Path) -> None:
    """And a difference is noticed."""
    recipe, out = Recipe("images", 3, averages=False), tmp_path / "trial" / "run"
    out.parent.mkdir()
    expected, operations = undisturbed(recipe, out.parent)
    killed = run(recipe.arguments(out), out, Accident("kill", operations // 2))
    assert killed.code == -9
    assert killed.saved > 0
    assert_safe(out, killed)
    assert run(recipe.arguments(out), out).code == 0
    assert_same(out, expected)
    (out / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(AssertionError, match="metrics differ"):
        assert_same(out, expected)
    assert found(out)["weights"] == expected["weights"]


@pytest.mark.long
def test_a_lost_checkpoint_is_noticed(tmp_path: Path) -> None:
    assert_safe(tmp_path, Ended(0, "", 5))
    with pytest.raises(AssertionError, match="the checkpoint of step 3 was complete, and is lost"):
        assert_safe(tmp_path, Ended(0, "", 5, saved=3))


def test_a_crash_and_a_hang_cost_one_trial_each() -> None:
    tally = run_trials(BAD, 1, range(6), seconds=120)
    assert [failure.number for failure in tally.failures] == [1, 2, 3]
    error, crash, hang = tally.failures
    assert error.summary.startswith("ValueError: a value of 0.")
    assert error.kind == "ValueError: a value of #"
    assert "by_number" in error.details
    assert crash.summary == "crash: the process died"
    assert hang.summary == "hangs: no answer within 2 s"
    assert tally.outcomes["not tried: not here"] == 1
    assert tally.tried == 5  # one was not tried
    assert f"drew {_drawn(5)}" in tally.outcomes


def _drawn(number: int) -> int:
    """The number that a trial draws, after the seed of torch."""
    random = random_of(1, "bad", number)
    random.getrandbits(62)
    return random.randrange(1000)


def test_time_is_up() -> None:
    assert run_trials(BAD, 1, range(6), seconds=0).tried == 0


def test_the_summary_names_what_failed_and_how_to_repeat_it() -> None:
    tally = Tally(BAD, failures=[Failure(3, "<b> 12 | x", ""), Failure(5, "<b> 7 | x", "")], seconds=90)
    tally.outcomes["right"] = 1000
    text = summary([tally], 4, 30.0, [PIECES["cluster"]])
    assert "`make torture SEED=4 MINUTES=30` writes this file." in text
    assert "| cluster | not run | 6 | | |" in text
    assert "1,002 trials, 2 failed." in text
    assert "| bad | 1,002 | 6 | 2 | 1.5 |" in text
    assert "- 1,000 × right" in text
    assert "- **2 × failed**: &lt;b> # / x. Again: `python -m torture bad --seed 4 --trial 3`" in text
    assert "## What it found" in text


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "PIECES", {"bad": BAD})
    with pytest.raises(SystemExit) as end:
        command.main(["--trials", "2", "--minutes", "2", "--out", str(tmp_path / "torture.md")])
    assert end.value.code == 1
    assert "bad: 2 of 2 trials, 1 failed" in capsys.readouterr().out
    assert "**1 × failed**: ValueError" in (tmp_path / "torture.md").read_text()
    for wrong in (["worse"], ["--trial", "1"]):
        with pytest.raises(SystemExit):
            command.main(wrong)
        assert "error: " in capsys.readouterr().err


def test_one_trial_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["torture", "calls", "--seed", "7", "--trial", "3"])
    runpy.run_module("torture", run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_where_torch_depends_on_the_layout_either_answer_is_right_and_no_other() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.relu() + (1.0 if x.ndim == 2 else 0.0)  # of all channels, or of one

    x = torch.randn(3, 4)
    twin, whole = (way(f, x, 1, "alternate") for way in (by_definition, in_one_piece))
    torch.testing.assert_close(whole - twin, torch.tensor([1.0, -1.0, 1.0, -1.0]).expand(3, 4))
    for answer in (twin, whole, twin.where(x > 0, whole)):
        assert_close(answer, twin, "output", or_else=whole)
    for wrong, other in ((whole, None), ((twin + whole) / 2, whole), (twin * torch.nan, whole)):
        with pytest.raises(AssertionError, match="output: differs from its slow twin by"):
            assert_close(wrong, twin, "output", or_else=other)


def test_the_watch_notices_what_a_call_leaves_behind() -> None:
    x, layer = torch.ones(3), torch.nn.Linear(2, 2)
    for change in (lambda: x.add_(1), lambda: torch.rand(1), lambda: layer.eval(), lambda: layer.weight.data.zero_()):
        with pytest.raises(AssertionError, match="changes"):
            asked(change, (x, layer))
    with pytest.raises(UnclearError, match="ZeroDivisionError"):
        asked(lambda: 1 / 0)
    with pytest.raises(UnclearError, match="ValueError: nothing in particular"):
        asked(lambda: _raise(ValueError("nothing in particular")))
    assert str(asked(lambda: _raise(ValueError("alpha: expected 1")))) == "refused, ValueError"


def _raise(error: Exception) -> None:
    raise error
