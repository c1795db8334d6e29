"""The language model of any cell: sizes, windows and steps, files, options, the term of its loss."""

from pathlib import Path
from typing import Any

import pytest
import torch

import bipolar
from bipolar.lab.cells.catalogue import RIVALS
from bipolar.lab.cells.model import RivalRNN
from bipolar.lab.cells.norm_stabiliser import norm_stabiliser
from bipolar.lab.cells.zoneout import StochasticDepth, Zoneout


def model_of(cell: str, width: int = 16, **options: Any) -> RivalRNN:
    return RivalRNN("abcd ", width, 2, cell, options=options)


@pytest.mark.parametrize("cell", RIVALS)
def test_a_text_at_once_in_windows_and_by_steps(cell: str) -> None:
    torch.manual_seed(0)
    model = model_of(cell).double().eval()
    tokens = torch.randint(5, (7, 3))
    whole, end = model(tokens)
    first, state = model(tokens[:4])
    second, last = model(tokens[4:], state)
    assert whole.shape == (7, 3, 5)
    assert end.shape[:2] == (1, 3)
    torch.testing.assert_close(torch.cat((first, second)), whole)
    torch.testing.assert_close(last, end)
    state = None
    for t, token in enumerate(tokens[:, 0]):
        logits, state = model.step(token, state)
        torch.testing.assert_close(logits, whole[t, 0])


@pytest.mark.parametrize("cell", RIVALS)
def test_a_width_for_a_number_of_parameters(cell: str) -> None:
    width = RivalRNN.width_for(1e5, 2, 50, cell)
    counts = [
        RivalRNN(50, width + d, 2, cell).num_parameters for d in ((-8, 0, 8) if cell == "transformer" else (-1, 0, 1))
    ]
    assert min(counts, key=lambda count: abs(count - 1e5)) == counts[1]
    assert counts[1] == pytest.approx(1e5, rel=0.15)


@pytest.mark.parametrize(("cell", "options"), [("mlstm", {}), ("lstm", {"zoneout": 0.1, "layer_norm": True})])
def test_files(cell: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = model_of(cell, **options).eval()
    model.save_pretrained(tmp_path)
    loaded = bipolar.load(tmp_path, RivalRNN)
    tokens = torch.randint(5, (7, 3))
    assert torch.equal(loaded(tokens)[0], model(tokens)[0])
    text = [m.generate("ab", 5, generator=torch.Generator().manual_seed(1)) for m in (model, loaded)]
    assert text[0] == text[1]


def test_options_reach_the_cell() -> None:
    zoneout = model_of("lstm", zoneout=0.1, zoneout_cell=0.4).rnn.layers[1]
    assert isinstance(zoneout, Zoneout)
    assert zoneout.rates == (0.1, 0.4)
    assert isinstance(model_of("gru", stochastic_depth=0.1).rnn.layers[0], StochasticDepth)
    assert model_of("highway", depth=3).num_parameters < model_of("highway").num_parameters
    assert model_of("lstm", layer_norm=True).num_parameters > model_of("lstm").num_parameters
    assert len(list(model_of("lstm", batch_norm=True).buffers())) > len(list(model_of("lstm").buffers()))


@pytest.mark.parametrize(
    ("cell", "options", "message"),
    [
        ("mlstm", {"zoneout": 0.1}, "zoneout: the cell 'mlstm' has no such option, got 0.1; it has norm_stabiliser"),
        ("lstm", {"zoneout": 1.0}, "expected a rate from 0 up to, not including, 1"),
        ("lstm", {"batch_norm": True, "layer_norm": True}, "layer_norm: expected nothing beside batch_norm"),
        ("transformer", {"heads": 3}, "heads: expected heads of an even width"),
        ("elman", {}, "cell: expected one of 'rnn', 'relu'"),
    ],
)
def test_bad_options(cell: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model_of(cell, **options)


def test_the_norm_stabiliser_is_a_term_of_the_loss_in_training_alone() -> None:
    model = model_of("rnn", norm_stabiliser=2.0)
    tokens = torch.randint(5, (7, 3))
    penalties = []
    for mode in (False, True):
        model.train(mode)(tokens)
        penalties.append(model.penalty)
    assert penalties[0] is None
    torch.testing.assert_close(penalties[1], norm_stabiliser(model.rnn(model.embedding[tokens])[0], 2.0))


def test_the_slope_of_detectors_follows_the_epoch() -> None:
    model = model_of("hm_lstm")
    model.start_epoch(10)
    assert float(model.rnn.slope) == pytest.approx(1.4)
