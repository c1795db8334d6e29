"""The benchmark of time to quality, in seconds: it says first how long it takes, and goes on where it was."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from benchmarks import quality
from bipolar.lab.training.journal import read_metrics

SMALL = "--data python-docs --params 2e4 --budget 0.002 --rates 4e-3 --batch-size 8 --window 10 --seeds 1 --quiet"
NETWORKS = ["GRU, 1 layer", "stack, 36 layers", "mLSTM, 1 layer"]


@pytest.mark.long
def test_time_to_quality(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "measured", lambda config: 0.01)
    quality.main([*SMALL.split(), "--out", str(tmp_path), "--networks", *NETWORKS])
    said = capsys.readouterr().out
    assert said.startswith("This is long: 3 networks, ")
    (path,) = tmp_path.glob("*.json")
    results = json.loads(path.read_text())["results"]["0.002"]
    assert list(results) == NETWORKS
    for row in results.values():
        assert abs(row["parameters"] / 2e4 - 1) < 0.1
        assert row["steps"] == 12
        assert isinstance(row["valid_bpc"][0], float)
    assert path.with_suffix(".svg").exists()
    monkeypatch.setattr(quality, "measured", lambda config: pytest.fail("it is in the plan"))
    runs = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    assert all(read_metrics(path.parent)[-1]["step"] == 12 for path in runs)
    quality.main([*SMALL.split(), "--out", str(tmp_path), "--networks", *NETWORKS])
    assert {path: path.stat().st_mtime_ns for path in runs} == runs  # nothing is trained again
    assert capsys.readouterr().out.splitlines()[2:] == said.splitlines()[2:]


def test_the_next_best_rate_counts_where_a_seed_diverges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "measured", lambda config: 0.02)
    ends = {(2e-3, 100): 2.2, (4e-3, 100): 2.1, (8e-3, 100): 2.0, (2e-3, 799): 1.7, (4e-3, 799): 1.6}

    def outcome(contest: quality.Contest, name: str, rate: float, seed: int, steps: int) -> tuple[float, float]:
        return ends.get((rate, steps), 1.5 if seed == 1 else math.inf), 0.01

    monkeypatch.setattr(quality.Contest, "outcome", outcome)
    monkeypatch.setattr(quality, "stored", lambda directory: {"vocabulary": "abc"})
    given = quality.parsed(["--params", "2e4", "--budget", f"{8 / 60:g}", "--out", str(tmp_path)])
    row = quality.Contest(given).run("GRU, 1 layer")
    assert (row["steps"], row["rate"], row["diverged"]) == (799, 0.004, ["0.008"])  # by the pace of the search
    assert row["valid_bpc"] == [1.6, 1.6, 1.6]


def test_the_time_of_a_step(tmp_path: Path) -> None:
    given = quality.parsed([*SMALL.split(), "--out", str(tmp_path)])
    assert 0 < quality.measured(quality.Contest(given).config("GRU, 1 layer", 1e-3, 1, 100)) < 10


@pytest.mark.parametrize("name", quality.CANDIDATES)
def test_networks_have_the_parameters_and_no_dropout(name: str, tmp_path: Path) -> None:
    config = quality.Contest(quality.parsed(["--out", str(tmp_path)])).config(name, 1e-3, 1, 100)
    config = dataclasses.replace(config, max_epochs=200)  # for which the fast recipe would bring dropout
    assert abs(config.build("".join(map(chr, range(50)))).num_parameters / 1e6 - 1) < 0.05
    assert set(vars(config.recipe.rates).values()) == {0.0}


def test_a_point_for_the_search_and_one_for_all_seeds() -> None:
    row = {"by_rate": {"0.002": 2.1, "0.004": 2.0, "0.008": "did not converge"}, "search": 0.25, "minutes": 8.0}
    row |= {"valid_bpc": [1.8, 1.9, 2.0], "rate": 0.004, "parameters": 10, "width": 2, "steps": 100, "diverged": []}
    (short, tried), (whole, all_seeds) = quality.reached(row)
    assert (short, tried.mean, tried.spread) == (2.0, 2.0, None)
    assert whole == 8.0
    assert all_seeds.mean == pytest.approx(1.9)
    assert "0.004 of 3, by 25%" in quality.table({"8": {"GRU": row}})
    assert "0.002 of 3, the lowest, by 25%" in quality.table({"8": {"GRU": row | {"rate": 0.002}}})
    (axes,) = quality.draw({"8": {"GRU, 1 layer": row}}).axes
    assert list(axes.lines[0].get_xdata()) == [2.0, 8.0]
    alone = row | {"by_rate": {}, "search": None}
    assert len(quality.reached(alone)) == 1
