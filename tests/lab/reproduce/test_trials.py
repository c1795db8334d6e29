"""Trials: broken results are made again, divergence is a result, and of several versions the best has more seeds."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bipolar.lab.paper import table1
from bipolar.lab.reproduce import trials
from bipolar.lab.reproduce.executors import in_processes, one_after_another
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.listing import remaining
from bipolar.lab.reproduce.outcomes import Outcome
from bipolar.lab.reproduce.reproduction import Reproduction, record_again
from bipolar.lab.reproduce.trials import Trial, trial_of
from bipolar.lab.training.text import TextConfig
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


CONFIGS = {"a: low": TINY, "a: high": replace(TINY, lr=0.1), "b: low": replace(TINY, window=9)}


class TestVersions:
    """Of several versions of a candidate only the best with the first seed has the others."""

    def names(self, **errors: float | None) -> dict[int, list[str]]:
        """The names of the trials by seed, after runs that have ended so."""

        def outcome(error: float | None) -> Outcome:
            ended = {"status": "did not converge"} if error is None else {"status": "finished", "best_valid_bpc": error}
            return Outcome({}, ended, [], {})

        recorded = {1: {name.replace("_", ": "): outcome(error) for name, error in errors.items()}}
        found = trials.trials_by_seed(CONFIGS, 3, Path(), recorded, lambda name: name.partition(":")[0])
        return {seed: list(of_seed) for seed, of_seed in found.items()}

    def test_the_best_is_repeated(self) -> None:
        found = self.names(a_low=2.0, a_high=1.9, b_low=3.0)
        assert found == {1: list(CONFIGS), 2: ["a: high", "b: low"], 3: ["a: high", "b: low"]}

    def test_not_before_all_have_ended(self) -> None:
        assert self.names(a_low=2.0, b_low=3.0)[2] == ["b: low"]

    def test_one_that_diverges_is_not_the_best(self) -> None:
        assert self.names(a_low=2.0, a_high=None)[2] == ["a: low"]
        assert self.names(a_low=None, a_high=None)[2] == []
        assert self.names(b_low=None)[2] == ["b: low"]  # the only version: another seed may fare better

    def test_a_reproduction_trains_them_and_its_record_stands(self, tmp_path: Path) -> None:
        item = replace(tiny(seeds=2, activations=("relu", "elu", "belu")), candidate=lambda name: name[0])
        work = Reproduction([item], "quick", tmp_path)
        assert remaining(work).startswith("6 runs to go")  # each is one of its own
        item = replace(item, candidate=lambda name: "plain" if name in ("relu", "elu") else "bipolar")
        work = Reproduction([item], "quick", tmp_path)
        assert remaining(work).startswith("5 runs to go")  # three with the first seed, two with the second
        found = reproduce(item, tmp_path)
        first, second = found["by_seed"]["1"], found["by_seed"]["2"]
        assert set(second) == {min("relu", "elu", key=lambda name: first[name]), "belu"}
        assert found["complete"]
        shutil.rmtree(tmp_path / "runs")
        work = Reproduction([item], "quick", tmp_path)
        assert work.done(item)
        assert remaining(work).startswith("0 runs to go")


STAGES = {
    "first": TINY,
    "second": replace(TINY, start="first", lr=1e-4),
    "last": replace(TINY, start="second", lr=1e-5),
}


def staged(stages: dict[str, TextConfig], seeds: int = 1) -> Training:
    return replace(tiny(seeds=seeds), runs=lambda _: stages)


class TestStages:
    """Runs that start from others of their item."""

    @pytest.mark.parametrize("workers", [1, 2])
    def test_each_runs_after_the_one_before(self, tmp_path: Path, workers: int) -> None:
        item, asked = staged(STAGES, seeds=2), list[int]()

        def executor(trials: Sequence[Trial], *rest: Any) -> None:
            asked.append(len(trials))
            (one_after_another if workers == 1 else in_processes(workers))(trials, *rest)

        record = reproduce(item, tmp_path, executor)
        assert asked == [1] * 6  # three stages, two seeds
        assert list(record["runs"]) == ["first", "second", "last", "first, seed 2", "second, seed 2", "last, seed 2"]
        for name, before in (("second", "first"), ("last", "second"), ("last, seed 2", "second, seed 2")):
            config = record["runs"][name]["config"]
            origin = json.loads((tmp_path / "runs" / config["start"] / "config.json").read_text())["config"]
            assert origin["lr"] == record["runs"][before]["config"]["lr"]
            assert origin["seed"] == config["seed"]

    def test_a_record_of_all_needs_no_directory(self, tmp_path: Path) -> None:
        """For a stage more, those before it are trained again: a record has no weights."""
        two = {name: STAGES[name] for name in ("first", "second")}
        before = reproduce(staged(two), tmp_path)
        shutil.rmtree(tmp_path / "runs")
        assert Reproduction([staged(two)], "quick", tmp_path).done(staged(two))
        after = reproduce(staged(STAGES), tmp_path)
        assert after["complete"]
        assert after["results"].keys() == STAGES.keys()
        assert after["results"]["second"] == pytest.approx(before["results"]["second"])

    def test_other_seeds_wait_for_the_start(self, tmp_path: Path) -> None:
        reproduce(staged(STAGES), tmp_path)
        (first,) = (path for path in tmp_path.glob("runs/*") if "start" not in (path / "config.json").read_text())
        shutil.rmtree(first)
        (tmp_path / "tiny.json").unlink()
        work = Reproduction([staged(STAGES)], "quick", tmp_path, seeds=2)
        assert list(work.other_trials()) == []
        work.run()
        assert work.done(staged(STAGES))

    def test_no_stage_starts_from_one_that_diverged(self, tmp_path: Path) -> None:
        stages = STAGES | {"second": replace(STAGES["second"], lr=1e4, max_steps=60, patience=50)}
        record = reproduce(staged(stages), tmp_path)
        assert record["complete"]
        assert record["runs"]["second"]["result"]["status"] == "did not converge"
        last = record["runs"]["last"]["result"]
        assert (last["status"], last["step"]) == ("did not converge", 0)
        assert last["reason"].endswith("from which it starts, did not converge")
