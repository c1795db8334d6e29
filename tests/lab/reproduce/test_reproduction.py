"""Reproductions: every run once, a record after each, and records and pictures anew from what is there."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from bipolar.lab.paper import ITEMS
from bipolar.lab.reproduce import trials
from bipolar.lab.reproduce.executors import one_after_another
from bipolar.lab.reproduce.item import Computation, Training
from bipolar.lab.reproduce.reproduction import Reproduction, record_again
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.training.text import TextConfig, train_text
from tests.helpers.interruptions import KilledError
from tests.helpers.items import reproduce, tiny


def test_results_are_recorded_beside_what_was_published(tmp_path: Path) -> None:
    record = reproduce(tiny(), tmp_path)
    assert record["complete"]
    assert record["published"] == {"relu": 1.0}
    assert record["runs"]["belu"]["config"]["model"]["nonlinearity"] == "belu"
    assert record["runs"]["belu"]["result"]["status"] == "finished"
    assert {"commit", "machine", "versions", "seconds"} <= record.keys()
    assert str(tmp_path) not in (tmp_path / "tiny.json").read_text()


def test_seeds(tmp_path: Path) -> None:
    record = reproduce(tiny(seeds=2), tmp_path)
    assert record["by_seed"].keys() == {"1", "2"}
    assert record["results"] == record["by_seed"]["1"] != record["by_seed"]["2"]
    assert record["runs"]["belu, seed 2"]["config"]["seed"] == 2
    more = reproduce(tiny(seeds=2), tmp_path, seeds=3)
    assert more["by_seed"].keys() == {"1", "2", "3"}
    assert more["by_seed"]["2"] == record["by_seed"]["2"]


def test_three_seeds_are_the_default_where_runs_are_long() -> None:
    """But for runs that take the better part of an hour at the small scale, too."""
    for item in ITEMS.values():
        if isinstance(item, Training):
            assert item.seeds["paper"] >= 3
            assert item.seeds["small"] >= 3 or item.name in ("table2", "depths", "curve8")


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("run again")


def test_a_finished_run_is_shared_and_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reproduce(tiny(), tmp_path)
    monkeypatch.setattr("bipolar.lab.reproduce.trials.train_text", refuse)
    assert reproduce(tiny("another"), tmp_path)["results"] == first["results"]


def test_a_run_that_ends_while_the_record_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process ends it between any two questions."""
    item, ran = tiny(), trials.Trial.ran
    whole = reproduce(item, tmp_path)
    complete = set()
    for moment in range(8):
        asked = 0

        def late(trial: trials.Trial, moment: int = moment) -> Any:
            nonlocal asked
            if "belu" in trial.directory.name:
                asked += 1
                if asked <= moment:
                    return False
            return ran.fget(trial)

        (tmp_path / "tiny.json").unlink()
        monkeypatch.setattr(trials.Trial, "ran", property(late))
        Reproduction([item], "quick", tmp_path).record(item)
        record = json.loads((tmp_path / "tiny.json").read_text())
        complete.add(record["complete"])
        assert record["runs"].keys() == ({"relu", "belu"} if record["complete"] else {"relu"})
        assert all(whole["results"][name] == value for name, value in record["results"].items())
        assert record["results"].keys() == record["runs"].keys()
    assert complete == {True, False}


def test_a_computation_is_done_once_and_again_if_it_was_not_finished(tmp_path: Path) -> None:
    calls = []

    def compute(scale: Scale, data_dir: Path | None) -> dict[str, Any]:
        calls.append(scale)
        return {"a": math.inf}

    item = Computation(name="sum", title="A sum", compute=compute)
    for _ in range(2):
        assert reproduce(item, tmp_path)["results"] == {"a": "inf"}
    assert calls == ["quick"]
    (tmp_path / "sum.json").write_text("{half")
    assert reproduce(item, tmp_path)["complete"]
    assert len(calls) == 2


def test_what_there_is_is_recorded_after_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = train_text, iter(range(9))

    def second_dies(config: TextConfig, **options: Any) -> Any:
        if next(calls) == 1:
            raise KilledError
        return original(config, **options)

    monkeypatch.setattr(trials, "train_text", second_dies)
    with pytest.raises(KilledError):
        reproduce(tiny(), tmp_path)
    record = json.loads((tmp_path / "tiny.json").read_text())
    assert not record["complete"]
    assert list(record["results"]) == ["relu"]
    assert reproduce(tiny(), tmp_path)["complete"]


def test_a_record_remembers_how_many_seeds_there_are_to_be(tmp_path: Path) -> None:
    work = Reproduction([tiny()], "quick", tmp_path, seeds=2)
    one_after_another(list(work.first_trials()), None, lambda trial: None)
    work.record(tiny())
    record_again([tiny()], tmp_path)
    record = json.loads((tmp_path / f"{tiny().name}.json").read_text())
    assert (record["complete"], record["seeds"], list(record["by_seed"])) == (False, 2, ["1"])


def test_a_picture_is_drawn_again_from_the_record_alone(tmp_path: Path) -> None:
    reproduce(tiny(), tmp_path)
    shutil.rmtree(tmp_path / "runs")
    record, picture = tmp_path / f"{tiny().name}.json", tmp_path / f"{tiny().name}.svg"
    drawn = replace(tiny(), draw=lambda seeds: Figure())
    before = record.read_bytes()
    assert not picture.exists()
    record_again([drawn], tmp_path)
    assert picture.read_text().startswith("<?xml")
    assert record.read_bytes() == before
