"""Table 3: Text8 validation error by activation, 36 layers of 474 units.

The small scale trains on the start of Text8; the table names the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bipolar.lab.paper import table1
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Outcome, Results
from bipolar.lab.reproduce.rules import only_plain_diverges
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, Table, over
from bipolar.lab.reproduce.verdicts import Claim
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.models import CharRNN

PUBLISHED: dict[str, float | str] = {"relu": DNC, "brelu": 1.399, "elu": DNC, "belu": 1.334}
RATE = 0.01


def runs(scale: Scale) -> dict[str, TextConfig]:
    rates: dict[str, Any] = {"dropout": RATE, "recurrent_dropout": RATE, "block_dropout": RATE}
    base = {
        "quick": table1.base("quick", 36),
        "small": TextConfig(  # at a seventh of the paper's width, about seven times its learning rate
            "text8-74M", TextModel(36, CharRNN.width_for(0.3e6, 36, 27)), max_steps=600, lr=4e-4, max_valid_windows=100
        ),
        "paper": TextConfig("text8", TextModel(36, 474)),
    }[scale]
    return {
        name: replace(base, model=replace(base.model, nonlinearity=name, **rates))
        for name in ("relu", "brelu", "elu", "belu")
    }


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    return {
        name: {
            "text": o.config["data"],
            "valid_bpc": o.result.get("best_valid_bpc", f"{DNC}: {o.result.get('reason')}"),
            "test_bpc": o.result.get("test_bpc"),
        }
        for name, o in outcomes.items()
    }


def text_of(seeds: Sequence[Results]) -> str:
    """The name of the text that the runs were trained on."""
    return str(next(iter(seeds[0].values()))["text"])


def tables(seeds: Sequence[Results]) -> list[Table]:
    rows = {"36 layers": [Entry(over(seeds, name, "valid_bpc"), PUBLISHED[name]) for name in PUBLISHED]}
    return [Table(f"Validation error (BPC); the text here is {text_of(seeds)}", list(PUBLISHED), rows)]


CLAIMS = [
    Claim(
        "text8",
        "On Text8 ReLU and ELU networks diverge, BReLU and BELU networks do not.",
        where="Table 3",
        items=("table3",),
        rule="no run of ReLU or ELU converges, all of BReLU and BELU do",
        decide=only_plain_diverges("table3", ("relu", "elu")),
    ),
]

ITEM = Training(
    name="table3",
    title="Table 3: Text8 validation error (BPC)",
    claims=CLAIMS,
    published=PUBLISHED,
    runs=runs,
    collect=collect,
    tables=tables,
)
