from typing import Any

import pytest

from bipolar.lab.paper import ITEMS
from bipolar.lab.reproduce.outcomes import DNC, Outcome
from bipolar.lab.reproduce.tables import Entry, Table, over


def test_the_texts_of_entries() -> None:
    entry = Entry([1.0, 2.0, DNC], 1.25)
    assert entry.text(2) == "1.50 ± 0.71 (1 of 3 did not converge)"
    assert entry.difference == pytest.approx(0.25)
    assert entry.rendered(2).difference == "+0.25"
    assert Entry([-1e-9]).text(3) == "0.000"
    assert Entry(["did not converge"]).text(3) == "did not converge"
    assert Entry((), "did not converge").rendered(3).published == "did not converge"
    assert Entry().text(3) == ""
    assert Entry([38085823823872.0]).text(3) == "3.81e+13"


def test_a_search_that_failed_found_no_rate() -> None:
    failed = f"{DNC}: the loss is not finite"
    assert over([{"a": {"lr": 2e-5, "test_error": failed}}, {"a": {"lr": 0.5, "test_error": 3.0}}], "a", "lr") == [
        DNC,
        0.5,
    ]
    assert over([{"a": {"lr": 2e-5, "status": DNC}}, {"a": {"lr": 0.5, "status": "finished"}}], "a", "lr") == [DNC, 0.5]
    assert over([{"a": {"test_error": failed}}], "a", "lr") == []
    run: dict[str, Any] = {"test_error": failed, "lr": 2e-5, "last_train_loss": None, "attempts": []}
    make = ITEMS["table5"].tables
    assert make is not None
    _, rates = make([{"wrn": {"relu": run}}])
    (shown,) = {entry.ours for row in rates.rendered.values() for entry in row} - {""}
    assert shown == DNC


def test_a_difference_needs_the_same_data() -> None:
    rows = {"x": [Entry([1.5], 1.25)]}
    assert Table("", ["a"], rows).rendered["x"][0].difference == "+0.250"
    other = Table("", ["a"], rows, compared=False).rendered["x"][0]
    assert (other.published, other.difference) == ("1.250", "")


def test_the_last_steps_are_the_last_tenth_of_a_run() -> None:
    rows = [{"step": 10 * i, "x": float(i)} for i in range(1, 101)] + [{"step": 1000, "y": 1.0}]
    outcome = Outcome({}, {}, rows, {})
    assert outcome.last("x") == pytest.approx(95.5)
    assert Outcome({}, {}, rows[:3], {}).last("x") == 3.0  # one at least
    assert outcome.last("z") is None
