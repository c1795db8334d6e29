"""Figure 3 in miniature: the errors of several seeds, with the rate that the first one found."""

from dataclasses import replace
from pathlib import Path

import pytest

from bipolar.lab.paper import figure3
from bipolar.lab.training.guard import Guard
from bipolar.lab.training.images import ImageConfig, ImageModel
from tests.helpers.items import reproduce


def test_a_figure_of_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "MARGIN", -1.0)  # four steps are too few to be better than a guess
    model = ImageModel("orn", 10, 1, orientations=4)
    base = ImageConfig(
        data="digits", model=model, train_images=64, test_images=20, batch_size=32, max_epochs=2, search=True
    )
    configs = {name: replace(base, model=replace(model, activation=name)) for name in ("relu", "brelu")}
    item = replace(figure3.ITEM, runs=lambda _: configs, seeds={"quick": 2})
    record = reproduce(item, tmp_path)
    assert record["complete"]
    assert len(record["results"]["brelu"]["test_error"]) == 2
    rate = record["by_seed"]["1"]["relu"]["lr"]
    assert record["by_seed"]["2"]["relu"]["lr"] == rate  # found once
    assert record["runs"]["relu, seed 2"]["config"]["search"] is False
    assert (tmp_path / "figure3.svg").exists()
