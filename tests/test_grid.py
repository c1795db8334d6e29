"""The benchmark of the grid, in seconds: it says how long it takes, goes on where it was, and judges the choice."""

import json
from pathlib import Path

import pytest

from benchmarks import grid
from benchmarks.grid import Cell


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "LAYERS", (1, 12))
    monkeypatch.setattr(grid, "UNITS", (4,))
    monkeypatch.setattr(grid, "BATCHES", (2,))
    monkeypatch.setattr(grid, "MOST", 9)
    monkeypatch.setattr(grid, "record", lambda *_: pytest.fail("it was not asked to"))


@pytest.mark.usefixtures("small")
def test_it_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rounds", "1", "--at-least", "0", "--out", str(tmp_path / "grid.json")]
    grid.main([*options, "--minutes", "0"])
    assert capsys.readouterr().out.startswith("This is long: 2 cells")
    assert not list(tmp_path.iterdir())
    grid.main(options)
    said = capsys.readouterr().out
    assert "2 of 2: 12 x 4, batch 2, 9 steps: nn.RNN" in said
    cells = json.loads((tmp_path / "grid.json").read_text())["cells"]
    assert set(cells) == {"1 x 4, batch 2", "12 x 4, batch 2"}
    assert (tmp_path / "grid.svg").exists()
    grid.main(options)
    again = capsys.readouterr().out
    assert again.startswith("This is long: 0 cells")
    assert again.splitlines()[1:] == said.splitlines()[3:]
    with pytest.raises(SystemExit):  # two kinds of time do not mix
        grid.main([*options, "--busy"])


@pytest.mark.usefixtures("small")
def test_the_ratios_are_those_of_the_chosen_backend() -> None:
    found = {
        "1 x 4, batch 2": {"steps": 9, "nn.RNN": 4.0, "scan": 1.0, "wavefront": 2.0},
        "12 x 4, batch 2": {"steps": 50, "nn.RNN": 4.0, "scan": 1.0, "wavefront": 5.0},
    }
    ratios = grid.ratios(found)
    assert ratios == {Cell(1, 4, 2): ("scan", 0.25, 0.5), Cell(12, 4, 2): ("wavefront", 1.25, 0.25)}
    text = grid.summary(found)
    assert "Worst: 1.25 of the time of `nn.RNN`, at 12 x 4, batch 2 (aim 1: missed)" in text
    assert "loses 400 % at most" in text
    assert "not measured yet: 0" in text


def test_long_steps_have_fewer_time_steps() -> None:
    assert Cell(144, 512, 128).steps < Cell(36, 512, 128).steps < Cell(1, 32, 1).steps == grid.MOST
