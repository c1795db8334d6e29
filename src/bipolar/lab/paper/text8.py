"""Tables 3 and 4: Text8, 36 layers of 474 units. At the small scale its start, and the result says so."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bipolar.lab.paper import table1
from bipolar.lab.reproduce.comparison import Cell, Table, over, ranking
from bipolar.lab.reproduce.item import DNC, Outcome, Results, Scale, Training
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.models import CharRNN

VALIDATION: dict[str, float | str] = {"relu": DNC, "brelu": 1.399, "elu": DNC, "belu": 1.334}
TEST = {
    "MI-Tanh 1x2048 (Wu et al., 2016)": 1.52,
    "LSTM 1x2048 (Wu et al., 2016)": 1.51,
    "Skipping-RNN (Pachitariu & Sahani, 2013)": 1.48,
    "MI-LSTM 1x2048 (Wu et al., 2016)": 1.44,
    "LSTM 1x2000 (Cooijmans et al., 2016)": 1.43,
    "LSTM 1x2000 (Krueger et al., 2016)": 1.408,
    "mLSTM 1x1900 (Krause et al., 2016)": 1.40,
    "LSTM 1x2000 + Recurrent BN (Cooijmans et al., 2016)": 1.36,
    "LSTM 1x2000 + Stochastic depth (Krueger et al., 2016)": 1.343,
    "LSTM 1x2000 + Zoneout (Krueger et al., 2016)": 1.336,
    "Recurrent Highway Network (Zilly et al., 2016)": 1.29,
    "HM-LSTM 3x1024 + Layer norm (Chung et al., 2016)": 1.29,
    "BELU 36x474 (Eidnes & Nøkland, 2018)": 1.423,
}
RATE = 0.01


def runs(scale: Scale) -> dict[str, TextConfig]:
    rates: dict[str, Any] = {"dropout": RATE, "recurrent_dropout": RATE, "block_dropout": RATE}
    base = {
        "quick": table1.base("quick", 36),
        "small": TextConfig(
            "text8-74M", TextModel(36, CharRNN.width_for(0.3e6, 36, 27)), max_steps=2500, lr=4e-4, max_valid_windows=100
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


def _text(seeds: Sequence[Results]) -> str:
    return str(next(iter(seeds[0].values()))["text"])


def tables3(seeds: Sequence[Results]) -> list[Table]:
    rows = {"36 layers": [Cell(over(seeds, name, "valid_bpc"), VALIDATION[name]) for name in VALIDATION]}
    return [Table(f"Validation error (BPC); the text here is {_text(seeds)}", list(VALIDATION), rows)]


def tables4(seeds: Sequence[Results]) -> list[Table]:
    title = f"Test error (BPC); the text here is {_text(seeds)}"
    ours, theirs = over(seeds, "belu", "test_bpc"), TEST["BELU 36x474 (Eidnes & Nøkland, 2018)"]
    return [ranking(title, TEST, "BELU, 36 layers, here", ours, theirs)]


TABLE3 = Training(
    name="table3",
    title="Table 3: Text8 validation error (BPC)",
    published=VALIDATION,
    runs=runs,
    collect=collect,
    tables=tables3,
)
TABLE4 = Training(
    name="table4",
    title="Table 4: Text8 test error (BPC)",
    published=TEST,
    runs=lambda scale: {"belu": runs(scale)["belu"]},
    collect=collect,
    tables=tables4,
)
