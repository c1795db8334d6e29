"""The language model of any cell: sizes, windows and steps, files, options, the term of its loss."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bipolar
from bipolar.lab.cells.catalogue import OF_LSTM, RATES, RIVALS
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


@pytest.mark.parametrize("cell", RIVALS)
def test_files_in_double_precision(cell: str, tmp_path: Path) -> None:
    model = model_of(cell).double().eval()
    model.save_pretrained(tmp_path)
    tokens = torch.randint(5, (7, 3))
    torch.testing.assert_close(bipolar.load(tmp_path, RivalRNN).double()(tokens)[0], model(tokens)[0])


#: For each option a value that changes nothing, and one that changes the output, if any does.
VALUES: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(RATES, (0.0, 0.5)),
    **dict.fromkeys(OF_LSTM, (False, True)),
    "embedding_size": (4, 2),
    "level_share": (1.0, 0.5),
    "constant_slope": (False, None),  # of later epochs
    "depth": (10, 5),
    "skip": (2, 3),
    "heads": (4, 2),
    "context": (128, 2),
    "norm_stabiliser": (0.0, None),  # a term of the loss
}


def trained(cell: str, **options: Any) -> tuple[Tensor, ...]:
    """Output and state in training, from the same seeds."""
    torch.manual_seed(0)
    model = model_of(cell, **options)
    found: tuple[Tensor, ...] = model(torch.randint(5, (7, 3)), generator=torch.Generator().manual_seed(1))
    assert (model.penalty is None) == (not options.get("norm_stabiliser"))
    return found


@pytest.mark.parametrize(("cell", "option"), [(cell, option) for cell in RIVALS for option in RIVALS[cell].known])
def test_an_option_at_its_null_changes_nothing(cell: str, option: str) -> None:
    null, other = VALUES[option]
    plain = trained(cell)
    assert all(map(torch.equal, trained(cell, **{option: null}), plain))
    assert other is None or not torch.equal(trained(cell, **{option: other})[0], plain[0])


def test_options_at_their_nulls_beside_batch_norm() -> None:
    nulls = {option: VALUES[option][0] for option in RIVALS["lstm"].known if option != "batch_norm"}
    assert all(map(torch.equal, trained("lstm", batch_norm=True, **nulls), trained("lstm", batch_norm=True)))


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
        (
            "mlstm",
            {"zoneout": 0.1},
            "zoneout: the cell 'mlstm' has no such .*, got 0.1; it has dropout, norm_stabiliser",
        ),
        ("lstm", {"zoneout": 1.0}, "^zoneout: expected a rate .* not including, 1, got 1.0; the cell is 'lstm'"),
        ("lstm", {"zoneout_cell": -0.1}, "^zoneout_cell: expected a rate"),
        ("gru", {"stochastic_depth": 1.0}, "^stochastic_depth: expected a rate"),
        ("lstm", {"candidate_dropout": 1.0}, "^candidate_dropout: expected a rate"),
        ("delta_rnn", {"candidate_dropout": 1.0}, "^candidate_dropout: expected a rate"),
        ("lstm", {"recurrent_dropout": 1.0}, "^recurrent_dropout: expected a rate"),
        ("highway", {"input_dropout": 2.0}, "^input_dropout: expected a rate"),
        ("highway", {"depth": 0}, "^depth: expected a whole number of at least 1, got 0; the cell is 'highway'"),
        ("hyper_lstm", {"embedding_size": 0}, "^embedding_size: expected a whole number of at least 1"),
        ("rnn", {"norm_stabiliser": -1.0}, "^norm_stabiliser: expected a number that is not negative, got -1.0"),
        ("rnn", {"norm_stabiliser": math.nan}, "^norm_stabiliser: expected a number that is not negative, got nan"),
        ("transformer", {"norm_stabiliser": 1.0}, "^norm_stabiliser: the cell 'transformer' has no such option"),
        ("lstm", {"batch_norm": True, "layer_norm": True}, "layer_norm: expected nothing beside batch_norm, got True"),
        (
            "lstm",
            {"batch_norm": True, "weight_norm": False, "recurrent_dropout": 0.1},
            "^recurrent_dropout: expected nothing beside batch_norm, got 0.1; the cell is 'lstm'",
        ),
        ("transformer", {"heads": 3}, "^hidden_size: expected a multiple of 6, twice the number of heads, got 16"),
        (
            "hm_lstm",
            {"level_share": 0.0},
            "^level_share: expected a finite number above 0, got 0.0; the cell is 'hm_lstm'",
        ),
        ("elman", {}, "cell: expected one of 'rnn', 'relu'"),
    ],
)
def test_bad_options(cell: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model_of(cell, **options)


@pytest.mark.parametrize("cell", ["hm_lstm", "transformer"])
def test_levels_are_called_layers(cell: str) -> None:
    with pytest.raises(ValueError, match=rf"^num_layers: expected .*at least [12].*, got 0; the cell is '{cell}'"):
        RivalRNN("abc", 16, 0, cell)


def test_heads_are_checked_before_a_width_is_found() -> None:
    with pytest.raises(ValueError, match=r"^heads: expected a whole number of at least 1, got 0"):
        RivalRNN.width_for(1e5, 2, 50, "transformer", {"heads": 0})


def test_the_norm_stabiliser_is_a_term_of_the_loss_in_training_alone() -> None:
    model = model_of("rnn", norm_stabiliser=2.0)
    tokens = torch.randint(5, (7, 3))
    model.eval()(tokens)
    assert model.penalty is None
    model.train()(tokens)
    first, _ = model.rnn.layers[0](model.embedding[tokens])
    second, _ = model.rnn.layers[1](first)
    torch.testing.assert_close(model.penalty, norm_stabiliser(first, 2.0) + norm_stabiliser(second, 2.0))


def test_dropout_on_outputs_does_not_reach_the_norm_stabiliser() -> None:
    model = RivalRNN(5, 16, 1, "rnn", dropout=0.9, options={"norm_stabiliser": 2.0})
    tokens = torch.randint(5, (7, 3))
    found = []
    for _ in range(2):
        model(tokens)
        found.append(model.penalty)
    assert torch.equal(*found)


@pytest.mark.parametrize("cell", [cell for cell, rival in RIVALS.items() if rival.recurrent])
def test_every_recurrent_cell_has_a_norm_stabiliser(cell: str) -> None:
    model, tokens = model_of(cell, norm_stabiliser=2.0), torch.randint(5, (7, 3))
    model(tokens)
    assert model.penalty > 0


def test_characters_are_one_hot() -> None:
    """So a network has as many weights as published: an LSTM of 1,000 units on 50 characters 4 x 1,000 x 1,050."""
    with torch.device("meta"):
        model = RivalRNN(50, 1000, 1, "lstm")
    assert model.num_parameters == 4 * 1000 * 1050 + 4000 + 1001 * 50
    assert torch.equal(RivalRNN(4, 8, 1, "lstm").embedding, 2 * torch.eye(4))


def test_the_slope_of_detectors_follows_the_epoch() -> None:
    model = model_of("hm_lstm")
    model.start_epoch(10)
    assert float(model.rnn.slope) == pytest.approx(1.4)
    model, tokens = model_of("hm_lstm", constant_slope=True, level_share=0.5), torch.randint(5, (7, 3))
    before = model(tokens)[0]
    model.start_epoch(10)
    assert float(model.rnn.slope) == 1
    assert torch.equal(model(tokens)[0], before)
    assert model.rnn.level_size == 8
