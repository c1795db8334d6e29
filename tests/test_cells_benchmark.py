"""The benchmark of cells: all of them, at equal parameters, in one table."""

import pytest

from benchmarks import cells
from bipolar.lab.cells.catalogue import RIVALS


def test_every_cell_has_a_row() -> None:
    assert {model.cell for model in cells.MODELS.values()} == {"stack", *RIVALS}


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    few = (cells.STACK, cells.FUSED, "mlstm")
    monkeypatch.setattr(cells, "MODELS", {name: cells.MODELS[name] for name in few})
    header, _, *rows = cells.measure(2e4, batch=4, window=5, rounds=1, at_least=0.0).splitlines()
    table = {
        cell.strip(): [part.strip() for part in rest] for cell, *rest in (row.strip("| ").split("|") for row in rows)
    }
    assert "characters/s" in header
    assert list(table) == list(few)
    assert all(float(parameters) == pytest.approx(0.02, rel=0.1) for _, parameters, *_ in table.values())
    speeds = {name: float(row[2].replace(",", "")) for name, row in table.items()}
    assert float(table["mlstm"][3]) == pytest.approx(speeds["mlstm"] / speeds[cells.STACK], rel=0.05, abs=0.01)
    assert table[cells.FUSED][4] == "1.00"
