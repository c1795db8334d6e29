"""The study of learning rates at 36 layers: what counts as borne, its picture, and verdicts either way."""

from pathlib import Path
from typing import Any

import pytest

from bipolar.lab.paper import rates36
from bipolar.lab.paper.rates36 import RATES
from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.verdicts import Evidence, Verdict
from tests.helpers.items import reproduce
from tests.helpers.records import DIVERGED, record

CLAIMS = {claim.name: claim for claim in rates36.CLAIMS}
HIGHER, SECOND, EQUAL = "higher rates at 36 layers", "rates by second moment", "equal at their best rates"
ALIKE = "alike at every rate"


def network(highest: int, best: float = 2.0) -> dict[str, dict[str, Any]]:
    """A network that bears so many of the rates, and reaches its best at the highest of them."""
    return {
        f"{rate:g}": {"valid_bpc": best + 0.1 * (highest - 1 - i) if i < highest else DIVERGED}
        for i, rate in enumerate(RATES)
    }


def verdict(claim: str, **networks: tuple[int, float]) -> Verdict:
    """The verdict of three seeds, in which the errors differ a little."""
    found = dict.fromkeys(("relu", "brelu", "elu", "belu", "relu_second_moment", "elu_second_moment"), (4, 2.0))
    found |= networks
    seeds = [
        {name.replace("_", ", ", 1).replace("_", " "): network(k, v + noise) for name, (k, v) in found.items()}
        for noise in (0.0, 0.003, -0.002)
    ]
    return CLAIMS[claim].verdict(Evidence({"rates36": record("rates36", *seeds)}))


def test_runs_differ_in_activation_start_and_rate_alone() -> None:
    assert [f"{rate:g}" for rate in RATES] == ["0.001", "0.002", "0.004", "0.008", "0.016", "0.032"]
    for scale in ("small", "paper"):
        runs = rates36.runs(scale)
        assert len(runs) == 6 * 6
        assert (
            len({(c.data, c.length, c.batch_size, c.model.num_layers, c.model.hidden_size) for c in runs.values()}) == 1
        )
        assert all(c.update.fast and c.model.num_layers == 36 for c in runs.values())
    assert rates36.runs("small")["elu, second moment: 0.016"].model.lsuv == "second_moment"


def test_a_rate_is_borne_up_to_an_error_near_the_best() -> None:
    errors: list[float | str] = [2.3, 2.0, 2.1, 2.49, 2.51, DNC]
    runs = {f"{rate:g}": {"valid_bpc": error} for rate, error in zip(RATES, errors, strict=True)}
    assert rates36.highest_borne({"relu": runs}, "relu") == RATES[3]
    assert rates36.highest_borne({"relu": {"0.1": {"valid_bpc": DIVERGED}}}, "relu") is None
    better = {"0.1": {"valid_bpc": 1.55}}  # of another network
    assert rates36.highest_borne({"relu": runs, "elu": better}, "relu") == RATES[1]


@pytest.mark.parametrize(
    ("errors", "highest"),
    [
        ([DIVERGED, 2.0], None),
        ([2.0, DIVERGED, 2.0], 0),  # a lucky rate beyond one at which it diverges
        ([2.0, 2.9, 2.0], 0),
        ([2.9, 2.0, 2.1], 2),  # slow at the lowest
        ([f"{DNC}: slow: no better than a uniform guess", 2.0], 1),
    ],
)
def test_a_network_fails_at_no_rate_below_the_highest(errors: list[Any], highest: int | None) -> None:
    runs = {f"{rate:g}": {"valid_bpc": error} for rate, error in zip(RATES, errors, strict=False)}
    expected = None if highest is None else RATES[highest]
    assert rates36.highest_borne({"relu": runs}, "relu") == expected


def test_the_best_rate() -> None:
    seeds = [{"relu": network(3)}, {"relu": network(4)}]
    assert rates36.best_rate(seeds, "relu") == "0.004"  # at 0.008 one of two diverges
    assert rates36.best_rate([{"relu": network(0)}], "relu") is None


class TestClaims:
    def test_higher_rates(self) -> None:
        assert verdict(HIGHER, brelu=(5, 2.0), belu=(6, 2.0)).status == "reproduced"
        assert verdict(HIGHER, relu=(5, 2.0), elu=(6, 2.0)).status == "not reproduced"
        assert verdict(HIGHER).status == "not reproduced"
        assert verdict(HIGHER, brelu=(5, 2.0)).status == "not decided"  # one of two pairs
        assert verdict(HIGHER, relu=(0, 2.0), elu=(0, 2.0)).status == "reproduced"  # none at all
        reason = verdict(HIGHER, brelu=(5, 2.0)).reason
        assert "brelu 0.016, 0.016, 0.016; relu 0.008, 0.008, 0.008" in reason

    def test_where_all_bear_all_rates_nothing_is_decided(self) -> None:
        top = dict.fromkeys(("relu", "brelu", "elu", "belu"), (6, 2.0))
        assert verdict(HIGHER, **top).status == "not decided"

    def test_a_network_that_is_poor_at_every_rate_bears_none(self) -> None:
        assert verdict(HIGHER, relu=(6, 3.0), elu=(6, 3.0)).status == "reproduced"

    def test_second_moment(self) -> None:
        assert verdict(SECOND).status == "reproduced"
        assert verdict(SECOND, relu_second_moment=(2, 2.0), elu_second_moment=(3, 2.0)).status == "not reproduced"

    def test_equally_well(self) -> None:
        assert verdict(EQUAL, brelu=(6, 2.0), belu=(5, 2.0)).status == "reproduced"  # whatever the rate
        assert verdict(EQUAL, brelu=(4, 1.9), belu=(4, 1.9)).status == "not reproduced"
        assert verdict(EQUAL, relu=(4, 1.9), elu=(4, 1.9)).status == "not reproduced"
        assert verdict(EQUAL, brelu=(4, 1.9)).status == "not decided"
        assert "no run of rates36 with elu has converged" in verdict(EQUAL, elu=(0, 2.0)).reason

    def test_alike(self) -> None:
        found = verdict(ALIKE, relu=(3, 2.1), belu=(5, 1.9))  # the same at every rate that both bear
        assert found.status == "reproduced"
        assert "at 0.004 brelu 2.1" in found.reason
        assert "at 0.008 brelu" not in found.reason
        assert verdict(ALIKE, relu=(4, 2.1), elu=(4, 2.1)).status == "not reproduced"
        assert verdict(ALIKE, brelu=(4, 2.1), belu=(4, 2.1)).status == "not reproduced"
        assert verdict(ALIKE, relu=(4, 2.1)).status == "not decided"  # one of two pairs

    def test_a_rate_that_one_seed_does_not_bear_is_not_compared(self) -> None:
        seeds = [{name: network(4) for name in ("relu", "brelu", "elu", "belu")} for _ in range(3)]
        seeds[1]["relu"] = network(0)  # one start that explodes
        seeds[2]["elu"]["0.001"] = seeds[2]["belu"]["0.001"] = {"valid_bpc": 2.6}  # slow
        found = CLAIMS[ALIKE].verdict(Evidence({"rates36": record("rates36", *seeds)}))
        assert found.status == "reproduced"
        assert "relu and brelu share no rate; at 0.002 belu" in found.reason
        for seed in seeds:
            seed["elu"] = network(0)
        found = CLAIMS[ALIKE].verdict(Evidence({"rates36": record("rates36", *seeds)}))
        assert found.status == "not decided"
        assert "no rate of rates36 is borne by all seeds" in found.reason


def test_table_and_picture(tmp_path: Path) -> None:
    seeds = [{"relu": network(3), "brelu": network(5)}, {"relu": network(4), "brelu": network(5)}]
    errors, summary = rates36.tables(seeds)
    assert [entry.ours for entry in errors.rendered["relu"]][3:5] == ["2.000 (1 of 2 did not converge)", DNC]
    assert [entry.ours for entry in summary.rendered["relu"]] == ["0.004, 0.008", "0.004", "2.050 ± 0.071", "5 of 12"]
    figure = rates36.draw(seeds)
    figure.savefig(tmp_path / "rates36.svg")
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert len(crosses) == 3 + 1  # relu at three rates, brelu at one
    assert len(axes.texts) == 4


@pytest.mark.long
def test_at_the_quick_scale(tmp_path: Path) -> None:
    found = reproduce(rates36.ITEM, tmp_path)
    assert found["complete"]
    assert set(found["results"]) == {"relu", "brelu"}
    assert (tmp_path / "rates36.svg").exists()
