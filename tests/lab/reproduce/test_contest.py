"""Contests: readings at equal time, the pace of a run, the best rate, and verdicts either way."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bipolar.lab.reproduce import contest
from bipolar.lab.reproduce.contest import LATE, Contest, Network
from bipolar.lab.reproduce.outcomes import DNC, Outcome
from bipolar.lab.reproduce.verdicts import Evidence, Verdict
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.lab.training.text.rival_options import RivalOptions
from tests.helpers.items import tiny
from tests.helpers.records import DIVERGED

NETWORKS = {
    "stack": Network(TextModel(36, 256, dropout=0.05, block_dropout=0.025), ("Ours 36x256",), gates=False),
    "ReLU": Network(TextModel(1, 2048, cell="relu"), ("ReLU 1x2048",), gates=False),
    "LSTM": Network(TextModel(1, 1000, cell="lstm"), ("LSTM 1x1000", "LSTM of others")),
    "LSTM + zoneout": Network(TextModel(1, 1000, cell="lstm", rival=RivalOptions(zoneout=0.05)), noise=True),
    "highway": Network(TextModel(1, 1500, cell="highway", rival=RivalOptions(depth=3, input_dropout=0.4))),
}
CONTEST = Contest(
    name="contest",
    place="Table 0",
    networks=NETWORKS,
    ours="stack",
    published={"Ours 36x256": 1.27, "ReLU 1x2048": 1.47, "LSTM 1x1000": 1.356, "LSTM of others": 1.4},
    small="ptb",
    paper=TextConfig("ptb", max_epochs=20),
)
ALL, GATELESS = CONTEST.claims()


def run(end: float | str, pace: float = 1.0) -> dict[str, Any]:
    """A run of 100 steps, whose error falls along a line from 1 above its end at step 20."""
    last = end if isinstance(end, float) else 0.0
    return {
        "valid_bpc": end,
        "test_bpc": end,
        "looks": [(step, last + 1 - (step - 20) / 80) for step in (20, 60, 100)],
        "seconds_of_a_step": pace,
        "characters_per_second": 6400 / pace,
    }


def results(**networks: dict[str, Any]) -> dict[str, Any]:
    found = {name: {"0.004": run(2.0)} for name in NETWORKS}
    return found | {name.replace("_", " "): {"0.004": one} for name, one in networks.items()}


def record(*seeds: dict[str, Any], scale: str = "small") -> dict[str, Any]:
    by_seed = {str(i + 1): one for i, one in enumerate(seeds)}
    return {"scale": scale, "complete": True, "results": seeds[0], "by_seed": by_seed}


def verdict(claim: Any, **networks: tuple[float | str, float]) -> Verdict:
    """The verdict of three seeds that differ a little, from the end and the pace of some networks."""
    seeds = [
        results(**{name: run(end + noise if isinstance(end, float) else end, p) for name, (end, p) in networks.items()})
        for noise in (0.0, 0.003, -0.002)
    ]
    found: Verdict = claim.verdict(Evidence({"contest": record(*seeds)}))
    return found


class TestEqualTime:
    def test_it_is_that_of_the_fastest(self) -> None:
        found = results(LSTM=run(2.0, pace=0.5), ReLU=run(DIVERGED, pace=0.1))
        assert contest.equal_time(found) == 50.0  # of 100 steps; a run that diverges has no time
        assert contest.error_at_equal_time(found, "LSTM") == 2.0
        assert contest.error_at_equal_time(found, "stack") == pytest.approx(2.0 + 1 - 30 / 80)  # at step 50
        assert contest.error_at_equal_time(found, "ReLU") == DNC

    def test_a_network_without_a_look_by_then(self) -> None:
        found = results(LSTM=run(2.0, pace=0.1))
        assert contest.error_at_equal_time(found, "stack") == LATE  # ten steps, and its first look is at 20

    def test_a_network_that_no_rate_suits_is_not_repeated(self) -> None:
        first, second = results(ReLU=run(DIVERGED)), results()
        del second["ReLU"]
        assert contest.error_at_equal_time(second, "ReLU") == DNC
        claims = Evidence({"contest": record(first, second)})
        assert "ReLU did not converge" in GATELESS.verdict(claims).reason

    @given(st.floats(0.2, 1.0))
    def test_it_is_read_from_the_line_between_looks(self, share: float) -> None:
        found = results(LSTM=run(2.0, pace=share))
        step = 100 * share
        assert contest.error_at_equal_time(found, "stack") == pytest.approx(2.0 + 1 - (step - 20) / 80)


def test_the_pace_leaves_out_validation_and_busy_moments() -> None:
    rows = [
        {"step": 10, "train_bpc": 5.0, "seconds": 3.0},  # slow at first
        {"step": 20, "train_bpc": 4.0, "seconds": 4.0},
        {"step": 20, "valid_bpc": 4.1, "seconds": 9.0},
        {"step": 30, "train_bpc": 3.0, "seconds": 10.0},
        {"step": 40, "train_bpc": 3.0, "seconds": 11.0},
        {"step": 40, "valid_bpc": 3.1, "seconds": 16.0},
        {"step": 40, "test_bpc": 3.1, "seconds": 17.0},
    ]
    assert contest.seconds_of_a_step(rows) == pytest.approx(0.1)
    assert contest.seconds_of_a_step(rows[2:3]) is None


def test_results_of_runs() -> None:
    config = {"batch_size": 128, "window": 50}
    rows = [
        {"step": 10, "train_bpc": 5.0, "seconds": 1.0},
        {"step": 10, "valid_bpc": 4.5, "averaged_valid_bpc": 4.6, "seconds": 2.0},
        {"step": 20, "train_bpc": 4.0, "seconds": 3.0},
        {"step": 20, "valid_bpc": 4.2, "averaged_valid_bpc": 4.1, "seconds": 4.0},
    ]
    finished = Outcome(config, {"status": "finished", "best_valid_bpc": 4.1, "test_bpc": 4.0}, rows, {})
    broken = Outcome(config, {"status": "did not converge", "reason": "not finite"}, rows[:1], {})
    found = contest.collect({"a: b: 0.001": finished, "a: b: 0.016": broken})["a: b"]
    assert found["0.001"] == {
        "valid_bpc": 4.1,
        "test_bpc": 4.0,
        "looks": [(10, 4.5), (20, 4.1)],
        "seconds_of_a_step": pytest.approx(0.1),
        "characters_per_second": pytest.approx(64_000),
    }
    assert found["0.016"]["valid_bpc"] == f"{DNC}: not finite"
    assert contest.best_rate({"a": found}, "a") == "0.001"
    assert contest.best_rate({"a": {"0.016": found["0.016"]}}, "a") is None


def test_three_sentences_on_the_place_of_ours() -> None:
    found = results(LSTM=run(1.5, pace=2.0), ReLU=run(1.9), highway=run(DIVERGED))
    assert CONTEST.shows([found]) == (
        "At equal time stack is number 2 of 4 networks with an error of every seed, and 2 of the 2 without gates, at a "
        "validation error of 2.000 BPC; the lowest error is that of ReLU, 1.900. After equal steps stack is number 3 "
        "of 4 networks with an error of every seed, and 2 of the 2 without gates, at a validation error of 2.000 BPC; "
        "the lowest error is that of LSTM, 1.500. It trains on 6,400 characters a second; the fastest, stack, on 6,400."
    )
    assert CONTEST.shows([results(stack=run(DIVERGED))]) == "stack has no error with every seed."
    text = CONTEST.shows([results(stack=run(1.0))])
    assert text.startswith(
        "At equal time stack is number 1 of 5 networks with an error of every seed, and 1 of the 2 without gates"
    )


def test_a_network_that_failed_with_a_seed_has_no_place() -> None:
    lucky = [results(ReLU=run(1.0)), results(ReLU=run(DIVERGED))]
    assert "the lowest error is that" not in CONTEST.shows(lucky)
    assert CONTEST.shows(lucky).startswith("At equal time stack is number 1 of 4 networks with an error of every seed")
    (table,) = CONTEST.tables(lucky)
    assert list(table.rows)[-1] == "ReLU"


def test_the_runs() -> None:
    small = CONTEST.runs("small")
    assert list(small)[:3] == ["stack: 0.001", "stack: 0.004", "stack: 0.016"]
    assert {contest.network_of(name) for name in small} == set(NETWORKS)
    assert len({(c.data, c.length, c.batch_size, c.window, c.look_every, c.model.params) for c in small.values()}) == 1
    assert small["stack: 0.004"].recipe.rates.dropout == 0.0  # noise is not its point
    assert small["highway: 0.004"].model.rival == RivalOptions(depth=3)
    assert small["LSTM + zoneout: 0.004"].model.rival == RivalOptions(zoneout=0.05)
    paper = CONTEST.runs("paper")
    assert paper["stack: 0.004"].model == NETWORKS["stack"].model
    assert paper["highway: 0.004"].model == NETWORKS["highway"].model


class TestClaims:
    def test_first_of_all(self) -> None:
        assert verdict(ALL, stack=(1.9, 1.0)).status == "reproduced"
        assert verdict(ALL).status == "reproduced"  # level with all
        behind = verdict(ALL, LSTM=(1.9, 1.0))
        assert behind.status == "not reproduced"
        assert "ahead of it: LSTM 1.900" in behind.reason
        assert "level: ReLU 2.000, LSTM + zoneout 2.000, highway 2.000" in behind.reason

    def test_time_counts(self) -> None:
        """A network that is as good after equal steps, and twice as fast, is ahead; a slow one behind."""
        assert verdict(ALL, LSTM=(2.0, 0.5)).status == "not reproduced"
        assert verdict(ALL, stack=(2.0, 0.5)).status == "reproduced"
        assert verdict(ALL, stack=(2.0, 2.0)).status == "not reproduced"

    def test_first_without_gates(self) -> None:
        assert verdict(GATELESS, LSTM=(1.5, 1.0)).status == "reproduced"  # which has gates
        assert verdict(GATELESS, ReLU=(1.5, 1.0)).status == "not reproduced"
        assert verdict(GATELESS, ReLU=(DIVERGED, 1.0)).status == "reproduced"

    def test_too_close_to_tell(self) -> None:
        seeds = [results(LSTM=run(2.0 + noise)) for noise in (0.06, -0.08, 0.0)]
        found = ALL.verdict(Evidence({"contest": record(*seeds)}))
        assert found.status == "not decided"
        assert "too close to tell: LSTM" in found.reason

    def test_without_a_run_of_ours_that_converges(self) -> None:
        assert verdict(ALL, stack=(DIVERGED, 1.0)) == Verdict(
            "not decided", "no run of contest with stack has an error at equal time"
        )


def test_table_and_picture(tmp_path: Path) -> None:
    first = results(LSTM=run(1.9, 0.5), ReLU=run(DIVERGED))
    first["stack"] = {"0.001": run(2.4), "0.004": run(1.8), "0.016": run(DIVERGED)}
    second = results(LSTM=run(1.8, 0.5), stack=run(1.9))
    del second["ReLU"]
    (table,) = CONTEST.tables([first, second])
    assert table.title == "Error (BPC); equal time: 50.0 s"
    assert next(iter(table.rows)) == "LSTM"  # the best at equal time
    assert list(table.rows)[-1] == "ReLU"
    at_time, valid, test, rate, speed = table.rendered["stack"]
    assert (valid.ours, rate.ours, speed.ours) == ("1.850 ± 0.071", "0.004", "6,400")
    assert at_time.ours == "2.475 ± 0.071"
    assert (test.published, test.difference) == ("1.270", "")  # networks of other sizes are not compared
    assert table.rendered["LSTM"][2].published == "1.356, 1.4"
    assert table.rendered["ReLU"][0].ours == DNC
    figure = CONTEST.draw([first, second])
    figure.savefig(tmp_path / "contest.svg")
    lines = {str(line.get_label()): line for line in figure.axes[0].lines}
    assert len([label for label in lines if not label.startswith("_")]) == 4  # without the one that diverges
    xs, ys = lines["LSTM"].get_data()
    assert list(xs) == [10.0, 30.0, 50.0]
    assert list(ys)[-1] == pytest.approx(1.85)


def test_the_item_repeats_the_best_rate_alone() -> None:
    item = CONTEST.item("A contest", "about")
    assert item.candidate("HM-LSTM: 3 levels: 0.001") == "HM-LSTM: 3 levels"
    assert len(item.expected_runs("small")) == len(NETWORKS) * (3 + 2)
    assert len(tiny().expected_runs("quick", seeds=3)) == 2 * 3
