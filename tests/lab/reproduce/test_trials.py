"""Trials: a result that is not whole is made again, and one that did not converge is a result."""

from dataclasses import replace
from pathlib import Path

import pytest

from bipolar.lab.paper import table1
from bipolar.lab.reproduce import trials
from bipolar.lab.reproduce.reproduction import Reproduction, record_again
from bipolar.lab.reproduce.trials import trial_of
from tests.helpers.items import TINY, reproduce, tiny


def test_a_run_that_diverges_is_a_result(tmp_path: Path) -> None:
    trial = trial_of(replace(TINY, lr=1e4, max_steps=60, patience=50), tmp_path)
    trials.run(trial, None)
    outcome = trial.outcome()
    assert not outcome.converged
    value = table1.collect({"4: relu": outcome})["4"]["relu"]["valid_bpc"]
    assert value.startswith("did not converge: the loss")


@pytest.mark.parametrize("content", ['{"status": "fin', "[]", ""])
def test_a_result_that_is_not_whole_is_made_again(tmp_path: Path, content: str) -> None:
    whole = reproduce(tiny(), tmp_path)["results"]
    first = next(iter(tmp_path.glob("runs/*/result.json")))
    first.write_text(content)
    (tmp_path / "tiny.json").write_text('{"scale": "quick", "results": {}}')  # which had the result, too
    assert not Reproduction([tiny()], "quick", tmp_path).done(tiny())
    record_again([tiny()], tmp_path)
    assert reproduce(tiny(), tmp_path)["results"] == pytest.approx(whole)
