"""Records without the directories of their runs, as in a clone: what they have is not run again, and they grow."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from bipolar.lab.reproduce import trials
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.listing import listing, remaining
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.records import merged
from bipolar.lab.reproduce.reproduction import Reproduction
from bipolar.lab.training.images import ImageConfig
from bipolar.lab.training.text import TextConfig, train_text
from tests.helpers.interruptions import KilledError
from tests.helpers.items import reproduce, tiny


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The activation and the seed of each run that is trained."""
    found: list[tuple[str, int]] = []

    def note(config: TextConfig, **options: Any) -> Any:
        found.append((config.model.nonlinearity, config.seed))
        return train_text(config, **options)

    monkeypatch.setattr(trials, "train_text", note)
    return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of the tiny item, one seed."""
    out = tmp_path_factory.mktemp("recorded")
    reproduce(tiny(), out)
    return out / "tiny.json"


@pytest.fixture
def clone(recorded: Path, tmp_path: Path) -> Path:
    """A directory with that record, and nothing else."""
    shutil.copy(recorded, tmp_path)
    return tmp_path


def record_in(directory: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((directory / "tiny.json").read_text())
    return record


def change(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = record_in(directory)
    change(record)
    (directory / "tiny.json").write_text(json.dumps(record))


def test_only_the_seeds_that_a_record_lacks_are_trained(clone: Path, trained: list[tuple[str, int]]) -> None:
    before = record_in(clone)
    pictures: list[int] = []

    def draw(seeds: Any) -> Figure:
        pictures.append(len(seeds))
        return Figure()

    record = reproduce(replace(tiny(), draw=draw), clone, seeds=3)
    assert trained == [("relu", 2), ("belu", 2), ("relu", 3), ("belu", 3)]
    assert list(record["by_seed"]) == ["1", "2", "3"]
    assert record["results"] == record["by_seed"]["1"] == before["results"]
    assert list(record["runs"]) == ["relu", "belu", "relu, seed 2", "belu, seed 2", "relu, seed 3", "belu, seed 3"]
    assert record["runs"]["belu"] == before["runs"]["belu"]
    assert (record["complete"], record["seeds"]) == (True, 3)
    assert record["seconds"] == pytest.approx(sum(run["result"]["seconds"] for run in record["runs"].values()), abs=0.1)
    assert pictures == [3]


def test_a_run_that_an_item_has_gained_is_trained_alone(clone: Path, trained: list[tuple[str, int]]) -> None:
    before = record_in(clone)
    record = reproduce(tiny(activations=("elu", "relu", "belu")), clone)
    assert trained == [("elu", 1)]
    assert record["results"].keys() == {"relu", "belu", "elu"}
    assert record["results"].items() >= before["results"].items()
    assert list(record["runs"]) == ["elu", "relu", "belu"]
    assert record["complete"]


def test_a_record_that_was_broken_off_goes_on(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second_dies(config: TextConfig, **options: Any) -> Any:
        if config.seed == 2 and config.model.nonlinearity == "belu":
            raise KilledError
        return train_text(config, **options)

    monkeypatch.setattr(trials, "train_text", second_dies)
    with pytest.raises(KilledError):
        reproduce(tiny(), clone, seeds=2)
    record = record_in(clone)
    assert (record["complete"], record["seeds"], list(record["by_seed"]["2"])) == (False, 2, ["relu"])
    shutil.rmtree(clone / "runs")
    fewer = reproduce(tiny(), clone)
    assert fewer == record, "a record does not shrink"
    monkeypatch.undo()
    assert reproduce(tiny(), clone, seeds=2)["complete"]


@pytest.mark.parametrize(
    "item", [tiny(steps=5), tiny(activations=("belu",))], ids=["another configuration", "no run any more"]
)
def test_a_record_of_other_runs_is_not_used(clone: Path, item: Training, trained: list[tuple[str, int]]) -> None:
    record = reproduce(item, clone)
    assert len(trained) == len(record["runs"]) == len(record["results"]) == len(item.runs("quick"))


def test_a_record_that_does_not_count_is_named(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduce(tiny(steps=3), clone)
    assert (
        f"tiny: its record in {clone} has runs of another configuration; none of it counts" in capsys.readouterr().out
    )


@pytest.mark.parametrize(("setting", "known"), [("pattern", True), ("balance", False)])
def test_a_setting_that_is_newer_than_a_record(
    clone: Path, setting: str, known: bool, trained: list[tuple[str, int]]
) -> None:
    """It had its default then; but networks from before ``balance`` had another start."""
    change(clone, lambda record: record["runs"]["belu"]["config"]["model"].pop(setting))
    reproduce(tiny(), clone)
    assert trained == ([] if known else [("relu", 1), ("belu", 1)])


def test_a_setting_that_is_none_any_more(clone: Path, trained: list[tuple[str, int]]) -> None:
    change(clone, lambda record: record["runs"]["relu"]["config"].update(temperature=1.0))
    reproduce(tiny(), clone)
    assert len(trained) == 2


@pytest.mark.parametrize("damage", [{"runs": []}, {"by_seed": {}}, {"runs": {"relu": {}, "belu": {}}}])
def test_a_damaged_record_is_not_used(clone: Path, damage: Results, trained: list[tuple[str, int]]) -> None:
    change(clone, lambda record: record.update(damage))
    assert reproduce(tiny(), clone)["complete"]
    assert len(trained) == 2


def test_a_record_with_nothing_new_stays_as_it_is(clone: Path, trained: list[tuple[str, int]]) -> None:
    before = (clone / "tiny.json").read_bytes()
    work = Reproduction([tiny()], "quick", clone)
    assert listing(work).splitlines()[2].endswith("done")
    assert remaining(work).startswith("0 runs to go")
    work.run()
    assert (clone / "tiny.json").read_bytes() == before
    assert not trained


def test_a_run_directory_counts_more_than_the_record(tmp_path: Path) -> None:
    before = reproduce(tiny(seeds=2), tmp_path)
    change(tmp_path, lambda record: record["runs"]["belu"]["result"].update(seconds=1e6))
    change(tmp_path, lambda record: record["by_seed"]["1"].update(belu=0.0, gone=0.0))
    record = reproduce(tiny(seeds=2), tmp_path)
    assert {key: record[key] for key in ("by_seed", "runs")} == {key: before[key] for key in ("by_seed", "runs")}


def test_other_items_need_runs_of_their_own(clone: Path, trained: list[tuple[str, int]]) -> None:
    """What an item makes of a run may need more than the record of another has, such as its curve."""
    work = Reproduction([tiny(), tiny("another")], "quick", clone)
    work.run()
    assert trained == [("relu", 1), ("belu", 1)]
    assert work.done(tiny("another"))


def test_other_seeds_take_the_rate_that_a_recorded_search_found(tmp_path: Path) -> None:
    config = ImageConfig("digits", search=True)
    item = Training(name="tiny", title="A search", runs=lambda _: {"a": config, "b": config}, collect=lambda o: dict(o))

    def run(rate: float, status: str, config: ImageConfig = config) -> Results:
        return {"config": config.to_json(), "result": {"status": status, "lr": rate, "seconds": 1.0}}

    def seeds_left(**runs: Results) -> list[tuple[int, bool, float | None]]:
        by_seed: Results = {"1": {}, "2": {}}
        record = {"scale": "quick", "complete": True, "results": {}, "by_seed": by_seed, "runs": runs}
        (tmp_path / "tiny.json").write_text(json.dumps(record))
        work = Reproduction([item], "quick", tmp_path, seeds=3)
        left = [trial.config for trial in (*work.first_trials(), *work.other_trials()) if not trial.done]
        return [(c.seed, c.search, c.lr) for c in left if isinstance(c, ImageConfig)]

    firsts = {"a": run(0.02, "finished"), "b": run(0.01, "did not converge")}
    assert seeds_left(**firsts) == [(2, False, 0.02), (3, False, 0.02)]
    second = replace(config, seed=2, search=False, lr=0.02)
    assert seeds_left(**firsts, **{"a, seed 2": run(0.02, "finished", second)}) == [(3, False, 0.02)]
    at_another_rate = {"a, seed 2": run(0.04, "finished", replace(second, lr=0.04))}
    assert seeds_left(**firsts, **at_another_rate) == [(1, True, None), (1, True, None)]
    slow, diverged = {"reason": "the loss is no better than a uniform guess after 160 steps"}, {"reason": "not finite"}
    for attempts, stands in (([slow, {}], False), ([diverged, {}], True), ([diverged, slow], True)):
        firsts["a"]["result"]["attempts"] = attempts  # the rate was once halved for runs that were merely slow
        assert (len(seeds_left(**firsts)) == 2 and seeds_left(**firsts)[0][0] == 2) is stands


def test_nested_results_are_merged() -> None:
    old = {"4": {"relu": {"bpc": 2.0}}, "36": {"relu": {"bpc": 3.0}}, "curve": [1, 2]}
    new = {"4": {"belu": {"bpc": 1.0}}, "36": {"relu": {"bpc": 1.5}}, "curve": [3]}
    assert merged(old, new) == {
        "4": {"relu": {"bpc": 2.0}, "belu": {"bpc": 1.0}},
        "36": {"relu": {"bpc": 1.5}},
        "curve": [3],
    }
