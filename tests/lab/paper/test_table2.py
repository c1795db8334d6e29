"""Table 2: its network in stages at the small scale, and what a run shorter than the paper's can decide."""

import pytest

from bipolar.lab.paper import table2
from bipolar.lab.reproduce.outcomes import DNC, Outcome
from bipolar.lab.reproduce.verdicts import Evidence, Status
from tests.helpers.records import record

BEST, _ = table2.CLAIMS


def outcome(test_bpc: float) -> Outcome:
    return Outcome({"model": {"hidden_size": 256}}, {"status": "finished", "test_bpc": test_bpc}, [], {})


def test_the_last_stage_alone_counts() -> None:
    stages = {"stage 1": outcome(1.35), "stage 2": outcome(1.26)}
    found = {"belu": {"width": 256, "test_bpc": 1.26}}
    assert table2.collect(stages) == found
    assert table2.collect({"stage 1": stages["stage 1"]}) == {}  # it is a run of another item, too
    assert table2.collect({"belu": outcome(1.26)}) == found
    assert table2.tables([{}]) == []
    assert len(table2.tables([found, {}])) == 1
    assert list(table2.runs("small")) == list(stages)


@pytest.mark.parametrize(
    ("error", "scale", "status"),
    [
        (1.3, "small", "reproduced"),
        (1.5, "small", "not decided"),
        (1.5, "paper", "not reproduced"),
        (DNC, "small", "not reproduced"),
    ],
)
def test_a_short_run_can_show_it_and_not_refute_it(error: float | str, scale: str, status: Status) -> None:
    seeds = [{"belu": {"width": 256, "test_bpc": error}}] * 3
    assert BEST.verdict(Evidence({"table2": record("table2", *seeds, scale=scale)})).status == status
    unfinished = record("table2", *[{}] * 3, scale=scale)
    assert BEST.verdict(Evidence({"table2": unfinished})).status == "not decided"
