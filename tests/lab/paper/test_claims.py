"""Claims of all items: results on either side of each rule."""

from typing import Any

import pytest

from bipolar.lab.paper import ITEMS
from bipolar.lab.reproduce.outcomes import DNC
from bipolar.lab.reproduce.verdicts import Evidence, Verdict
from tests.helpers.records import DIVERGED, bpc, record, table1_results

CLAIMS = [claim for item in ITEMS.values() for claim in item.claims]
BY_NAME = {claim.name: claim for claim in CLAIMS}


def run_of(loss: float | str) -> dict[str, Any]:
    """A run with a constant training loss, or one that did not converge."""
    if isinstance(loss, str):
        return {"status": loss, "train_bpc": [[1, 2.0]], "last_train_bpc": loss}
    return {"status": "finished", "train_bpc": [[1, loss], [2, loss]], "last_train_bpc": loss}


def curves(**losses: float | str) -> dict[str, Any]:
    return {name: run_of(loss) for name, loss in losses.items()}


def three(relu: float | str, brelu: float | str, second_moment: float | str) -> dict[str, Any]:
    return curves(relu=relu, brelu=brelu) | {"relu, second moment": run_of(second_moment)}


def ends(key: str, values: dict[str, float]) -> dict[str, Any]:
    return {name: {key: value} for name, value in values.items()}


def rates(error: float | str = 50.0, **found: float) -> dict[str, Any]:
    return {"wrn": {name: {"lr": rate, "test_error": error} for name, rate in found.items()}}


@pytest.mark.parametrize(
    ("claim", "item", "results", "status"),
    [
        ("elu", "table1", table1_results(elu=DIVERGED), "reproduced"),
        ("elu", "table1", table1_results(), "not decided"),
        ("elu", "table1", table1_results(elu=DIVERGED, belu=DIVERGED), "not reproduced"),
        ("selu", "table1", table1_results(selu=DIVERGED), "reproduced"),
        ("depth", "table1", table1_results() | {"4": {"relu": bpc(1.9), "belu": bpc(1.9)}}, "reproduced"),
        ("depth", "table1", table1_results() | {"4": {"relu": bpc(1.97), "belu": bpc(1.9)}}, "not decided"),
        ("depth", "table1", table1_results(), "not reproduced"),
        ("depth", "table1", table1_results(relu=DIVERGED, belu=DIVERGED), "not decided"),
        ("depth", "table1", {"36": {"relu": bpc(1.9)}}, "not decided"),
        (
            "text8",
            "table3",
            {n: {"valid_bpc": DIVERGED if n in ("relu", "elu") else 2.0} for n in ("relu", "brelu", "elu", "belu")},
            "reproduced",
        ),
        ("text8", "table3", {n: {"valid_bpc": 2.0} for n in ("relu", "brelu", "elu", "belu")}, "not decided"),
        ("smeared", "figure4", {"without skips": {"mean_lag_of_the_lowest_layer": 31.8}}, "reproduced"),
        ("smeared", "figure4", {"without skips": {"mean_lag_of_the_lowest_layer": 3.0}}, "not reproduced"),
        (
            "straightened",
            "figure4",
            {f"{k} skips": {"mean_lag_of_the_lowest_layer": v} for k, v in (("without", 30.0), ("with", 5.0))},
            "reproduced",
        ),
        (
            "skips",
            "figure5",
            ends("last_train_bpc", {"36 layers, no skips": 4.3, "36 layers, skips": 2.3, "4 layers, skips": 2.9}),
            "reproduced",
        ),
        ("faster", "figure6", curves(relu=2.4, brelu=2.3), "reproduced"),
        ("faster", "figure6", curves(relu=2.4, brelu=2.385), "not decided"),
        ("faster", "figure6", curves(relu=2.4, brelu=2.4), "not reproduced"),
        ("faster", "figure6", curves(relu=2.4, brelu=2.6), "not reproduced"),
        ("faster", "figure6", curves(relu=2.4, brelu=DNC), "not reproduced"),
        ("faster", "figure6", curves(relu=DNC, brelu=DNC), "not decided"),
        ("faster elu", "figure6", curves(elu=DNC, belu=2.4), "reproduced"),
        (
            "second moment",
            "figure6",
            three(2.5, 2.3, 2.305),
            "reproduced",
        ),
        (
            "second moment",
            "figure6",
            three(2.5, 2.3, 2.4),
            "not reproduced",
        ),
        ("second moment", "figure6", three(2.3, 2.3, 2.3), "not decided"),
        ("second moment", "figure6", three(DNC, DNC, DNC), "not decided"),
        ("rates", "table5", rates(relu=0.01, brelu=0.04, elu=0.01, belu=0.02), "reproduced"),
        ("rates", "table5", rates(relu=0.01, brelu=0.02, elu=0.01, belu=0.02), "not decided"),
        ("rates", "table5", rates(relu=0.04, brelu=0.04), "not reproduced"),
        ("rates", "table5", rates(error=DNC, relu=0.01, brelu=0.04), "not reproduced"),
        ("errors", "table5", {"wrn": {"relu": {"test_error": 50.0}, "brelu": {"test_error": 44.0}}}, "reproduced"),
        ("errors", "table5", {"wrn": {"relu": {"test_error": 50.0}, "brelu": {"test_error": 47.0}}}, "not decided"),
        ("errors", "table5", {"wrn": {"relu": {"test_error": 50.0}, "brelu": {"test_error": 49.5}}}, "not reproduced"),
        (
            "aliasing",
            "aliasing",
            ends("best_valid_bpc", {"elu, right": 2.47, "belu, right": 2.45, "elu, after skip": 3.9}),
            "reproduced",
        ),
        (
            "aliasing",
            "aliasing",
            ends("best_valid_bpc", {"elu, right": 2.47, "belu, right": 2.45}) | {"elu, after skip": {"status": DNC}},
            "reproduced",
        ),
    ],
)
def test_verdicts(claim: str, item: str, results: dict[str, Any], status: str) -> None:
    assert BY_NAME[claim].verdict(Evidence({item: record(item, results)})).status == status


def test_the_shortcut_is_decided_by_seeds() -> None:
    def seed(clean: float, flipped: float, rectified: float) -> dict[str, Any]:
        values = {"relu, clean": clean, "brelu, clean": flipped, "relu, rectified": rectified}
        return {name: {"test_error": value} for name, value in values.items()}

    claim = BY_NAME["shortcut"]
    apart = record("shortcut", seed(50.0, 50.2, 56.0), seed(50.5, 50.1, 55.5), seed(50.1, 50.6, 56.3))
    assert claim.verdict(Evidence({"shortcut": apart})).status == "reproduced"
    noisy = record("shortcut", seed(50.0, 50.2, 56.0), seed(60.5, 58.1, 50.5), seed(40.1, 42.6, 56.3))
    assert claim.verdict(Evidence({"shortcut": noisy})).status == "not decided"
    other = record("shortcut", seed(50.0, 40.2, 56.0), seed(50.5, 40.1, 55.5), seed(50.1, 40.6, 56.3))
    assert claim.verdict(Evidence({"shortcut": other})).status == "not reproduced"


def test_the_best_rate_is_that_with_the_lowest_error() -> None:
    def results(best: dict[int, float]) -> dict[str, Any]:
        others = "recurrent_dropout 0.025, block_dropout 0.025"
        return {
            f"{depth} layers, relu, dropout {rate}, {others}": 1.0 + 3 * abs(rate - best[depth])
            for depth in (4, 36)
            for rate in (0.025, 0.05, 0.1)
        }

    claim = BY_NAME["dropout"]
    for best, status in (({4: 0.1, 36: 0.025}, "reproduced"), ({4: 0.05, 36: 0.05}, "not decided")):
        evidence = Evidence({"dropout": record("dropout", results(best), scale="paper")})
        assert claim.verdict(evidence).status == status


def test_without_runs_or_too_small_nothing_is_decided() -> None:
    for claim in CLAIMS:
        assert claim.verdict(Evidence({})) == Verdict("not decided", f"there are no runs of {claim.items[0]}")
    elu = BY_NAME["elu"]
    quick = Evidence({"table1": record("table1", table1_results(elu=DIVERGED), scale="quick")})
    assert elu.verdict(quick) == Verdict("not decided", "the scale quick is too small to tell")
    half = record("table1", table1_results(elu=DIVERGED)) | {"complete": False}
    assert elu.verdict(Evidence({"table1": half})).reason == "the runs of table1 are not complete"


def test_a_claim_that_lacks_seeds_is_not_decided() -> None:
    half = record("table1", table1_results(elu=DIVERGED), {"36": {}, "4": {}})
    assert BY_NAME["elu"].verdict(Evidence({"table1": half})).reason.endswith("for some seeds")


def test_every_claim_belongs_to_items_that_there_are() -> None:
    for claim in CLAIMS:
        assert set(claim.items) <= set(ITEMS)
        assert claim.rule
        assert claim.text.endswith(".")
    assert len(BY_NAME) == len(CLAIMS)
