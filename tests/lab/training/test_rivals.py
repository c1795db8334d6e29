"""Rivals under the same loop: training, resuming, sampling, evaluation, and options that a cell does not have."""

import json
import re
from pathlib import Path

import pytest

from bipolar.lab.cells.model import RivalRNN
from bipolar.lab.cli import main
from bipolar.lab.errors import UsageError
from bipolar.lab.training.text import TextConfig, TextModel, evaluate_text, load_model
from bipolar.lab.training.text.rival_options import RivalOptions

SHORT = "--data python-docs --batch-size 8 --window 10 --recipe fast --max-valid-windows 2 --model.num-layers 2"


def test_a_rival_trains_stops_goes_on_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = "--model.cell hm_lstm --model.params 5000 --model.layer-norm --model.norm-stabiliser 0.1"
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    main(f"train text {SHORT} {model} --max-steps 6 --decay constant --out {whole}".split())
    main(f"train text {SHORT} {model} --max-steps 3 --decay constant --out {halves}".split())
    main(f"train text --resume {halves} --max-steps 6".split())
    one, two = (json.loads((run / "result.json").read_text()) for run in (whole, halves))
    assert one["test_bpc"] == two["test_bpc"]
    assert isinstance(load_model(whole), RivalRNN)
    assert evaluate_text(whole, "test")["test_bpc"] == pytest.approx(one["test_bpc"])
    capsys.readouterr()
    main(f"sample {whole} --prompt the --length 20".split())
    assert len(capsys.readouterr().out) >= 23

    main(f"export {whole} {tmp_path / 'public'}".split())
    command = re.search(r"bipolar (train text .*?)\n```", (tmp_path / "public/README.md").read_text(), re.DOTALL)
    assert command is not None
    main([*command[1].replace("\\\n", "").split(), "--out", str(tmp_path / "again")])
    assert json.loads((tmp_path / "again/result.json").read_text())["test_bpc"] == one["test_bpc"]


def test_torchs_own_cells_become_ours_where_an_option_asks_for_it() -> None:
    assert not TextModel(cell="lstm").is_rival
    assert TextModel(cell="lstm", rival=RivalOptions(zoneout=0.1)).is_rival
    assert TextModel(cell="mlstm").is_rival
    assert not TextModel().is_rival


def test_settings_survive_json() -> None:
    config = TextConfig("ptb", TextModel(cell="lstm", rival=RivalOptions(zoneout=0.1, layer_norm=True)))
    assert TextConfig.from_json(config.to_json()).to_json() == config.to_json()
    assert "rival" not in TextConfig("ptb").to_json()["model"]
    assert "zoneout-0.1" in TextConfig("ptb", TextModel(cell="lstm", rival=RivalOptions(zoneout=0.1))).directory.name


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TextModel(rival=RivalOptions(zoneout=0.1)), "--model.zoneout: the paper's stack has no such option, got 0.1"),
        (TextModel(cell="lstm", skip_every=None), "--model.skip-every: the cell 'lstm' has no such option"),
        (
            TextModel(cell="mlstm", rival=RivalOptions(depth=3)),
            "--model.depth: the cell 'mlstm' has no such option, got 3",
        ),
        (
            TextModel(cell="gru", recurrent_dropout=0.1),
            "recurrent-dropout, block-dropout: torch's own 'gru' has neither",
        ),
        (TextModel(cell="transformer", hidden_size=30), "--model.heads: expected heads of an even width each"),
    ],
)
def test_options_that_a_cell_does_not_have(model: TextModel, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TextConfig("python-docs", model).check()
