"""A directory with records, some of them hostile, and the report on them."""

import json
from pathlib import Path

import pytest

from bipolar.lab.paper import figure1
from bipolar.lab.report import write_report
from tests.helpers.records import DIVERGED, record, table1_results

EVIL = "<script>alert(1)</script>|</td>"


@pytest.fixture(scope="package")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    run = {"config": {"model": {"nonlinearity": EVIL}, "data": "ptb"}, "result": {}}
    records = {
        "figure1": record("figure1", figure1.compute("quick", None), scale="quick"),
        "table1": record(
            "table1", table1_results(elu=DIVERGED), table1_results(elu=1.8), machine=EVIL, runs={EVIL: run}
        ),
        "aliasing": record(
            "aliasing",
            {"elu, right": {"status": EVIL, "train_bpc": [(1, 5.0), (2, 4.0)], "best_valid_bpc": 2.0}},
        ),
    }
    for name, content in records.items():
        (out / f"{name}.json").write_text(json.dumps(content))
    write_report(out)
    return out
