"""Depth at equal time: one size, rates by the width, and verdicts either way."""

from pathlib import Path
from typing import Any

import pytest

from bipolar.lab.paper import depths
from bipolar.lab.reproduce.cost import steps_of
from bipolar.lab.reproduce.verdicts import Evidence, Status
from bipolar.models import CharRNN
from tests.helpers.items import reproduce
from tests.helpers.records import record

CLAIMS = {claim.name: claim for claim in depths.ITEM.claims}


def test_networks_of_one_size_at_rates_by_their_width() -> None:
    for config in [*depths.runs("small").values(), *depths.runs("paper").values()]:
        width = config.model.hidden_size
        assert config.lr is not None
        assert config.lr * width == pytest.approx(0.256)
        assert CharRNN.width_for(4.75e6, config.model.num_layers, 50) == pytest.approx(width, rel=0.01)


def test_longer_runs_take_equal_time_too() -> None:
    small, paper = depths.runs("small"), depths.runs("paper")
    for name, config in small.items():
        assert steps_of(paper[name]) == depths.LONGER * steps_of(config)


@pytest.mark.parametrize(
    ("claim", "errors", "minutes", "status"),
    [
        ("144 layers at equal time", (1.5, 1.4, 1.35), 44.0, "reproduced"),
        ("144 layers at equal time", (1.5, 1.4, 1.6), 44.0, "not reproduced"),
        ("144 layers at equal time", (1.5, 1.4, "did not converge"), 44.0, "not reproduced"),
        ("36 layers at equal time", (1.5, 1.4, 1.6), 44.0, "reproduced"),
        ("36 layers at equal time", (1.4, 1.4, 1.3), 44.0, "not reproduced"),
        ("144 layers at equal time", (1.5, 1.4, 1.35), 60.0, "not decided"),
        ("36 layers at equal time", (1.5, 1.4, 1.35), 60.0, "reproduced"),
    ],
)
def test_verdicts(claim: str, errors: tuple[Any, ...], minutes: float, status: Status) -> None:
    """The deepest network takes ``minutes``, the others forty."""
    results = {
        f"{layers} layers": {"valid_bpc": error, "minutes": minutes if layers == 144 else 40.0}
        for layers, error in zip((4, 36, 144), errors, strict=True)
    }
    evidence = Evidence({"depths": record("depths", *[results] * 3)})
    assert CLAIMS[claim].verdict(evidence).status == status


def test_it_runs(tmp_path: Path) -> None:
    found = reproduce(depths.ITEM, tmp_path)["results"]
    assert list(found) == ["4 layers", "36 layers", "144 layers"]
    for row in found.values():
        assert row["looks"][-1][1] == row["valid_bpc"]
        assert row["steps"] == 6
        assert row["minutes"] > 0
    assert (tmp_path / "depths.svg").exists()
