"""Rivals under the same loop: training, resuming, sampling, evaluation, and options that a cell does not have."""

import copy
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, cast

import pytest
import torch

from bipolar._tools.choices import RivalName
from bipolar.lab.cells.catalogue import OF_LSTM, RIVALS, cells_with
from bipolar.lab.cells.model import RivalRNN
from bipolar.lab.cells.path_norm import path_sgd
from bipolar.lab.cells.vanilla import Vanilla
from bipolar.lab.cli import main
from bipolar.lab.errors import UsageError
from bipolar.lab.training.images import ImageConfig
from bipolar.lab.training.journal import read_metrics
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.processes import without_fabric
from bipolar.lab.training.text import TextConfig, TextModel, evaluate_text, load_model, text_task
from bipolar.lab.training.text.rival_options import RivalOptions
from bipolar.lab.training.update import Update

SHORT = "--data python-docs --batch-size 8 --window 10 --recipe fast --max-valid-windows 2 --model.num-layers 2"


def test_the_norm_stabiliser_is_a_term_of_the_loss() -> None:
    losses = []
    for beta in (None, 3.0):
        model = TextModel(2, 8, cell="mi_rnn", rival=RivalOptions(norm_stabiliser=beta))
        config = TextConfig("python-docs", model, batch_size=4, window=10)
        task = text_task(config)
        task.setup(config.machine.fabric())
        torch.manual_seed(1)
        for parameter in task.model.parameters():
            torch.nn.init.normal_(parameter)
        task.start_epoch(0)
        losses.append(task.loss(0))
    (plain, bpc), (stabilised, same) = losses
    penalty = cast(RivalRNN, without_fabric(task.model)).penalty
    assert penalty is not None
    torch.testing.assert_close(stabilised, plain + penalty)
    assert torch.equal(bpc, same)


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


@pytest.mark.parametrize("cell", [*RIVALS, "stack"])
def test_mixed_precision(cell: str) -> None:
    """A step of training and a look at the error where autocast mixes single precision and bfloat16."""
    machine, model = Machine(precision="bf16-mixed"), TextModel(2, 8, cell=cast(Any, cell))
    task = text_task(TextConfig("python-docs", model, machine=machine, batch_size=2, window=4))
    task.setup(machine.fabric())
    task.start_epoch(0)
    loss, _ = task.loss(0)
    task.fabric.backward(loss)
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in task.model.parameters())


def test_torchs_own_cells_become_ours_where_an_option_asks_for_it() -> None:
    assert not TextModel(cell="lstm").is_rival
    assert TextModel(cell="lstm", rival=RivalOptions(zoneout=0.1)).is_rival
    assert TextModel(cell="mlstm").is_rival
    assert not TextModel().is_rival


def test_dropout_of_one_layer_is_ours_because_torch_has_none() -> None:
    torchs, ours = TextModel(2, 8, cell="lstm", dropout=0.5), TextModel(1, 8, cell="lstm", dropout=0.5)
    assert not torchs.is_rival
    network = TextConfig("ptb", ours).build("abc").train()
    x = torch.tensor([[0, 1], [2, 1]])
    assert not torch.equal(network(x)[0], network(x)[0])


@pytest.mark.parametrize(
    ("model", "noisy"),
    [
        (TextModel(1, 8, cell="delta_rnn", rival=RivalOptions(candidate_dropout=0.5)), True),
        (TextModel(1, 8, cell="highway", rival=RivalOptions(depth=2, input_dropout=0.5)), True),
        (TextModel(1, 8, cell="highway", rival=RivalOptions(depth=2)), False),
    ],
)
def test_noise_of_single_cells(model: TextModel, noisy: bool) -> None:
    network = TextConfig("ptb", model).build("abc").train()
    x = torch.tensor([[0, 1], [2, 1]])
    assert torch.equal(network(x)[0], network(x)[0]) is not noisy


def test_the_help_lists_options_under_their_family(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "text", "--help"])
    _, *parts = re.split(r"^[╭─ ]*([\w, ]*?) ?options[ ─╮]*$", capsys.readouterr().out, flags=re.MULTILINE)
    boxes = dict(zip(parts[::2], parts[1::2], strict=True))
    found = {title: set(re.findall(r"--model\.(?!no-)([a-z-]+)", text)) for title, text in boxes.items()}
    assert found["rnn, relu, irnn, gru and lstm"] == {"zoneout", "zoneout-cell", "stochastic-depth"}
    assert {"depth", "input-dropout"} == found["highway"]
    assert {"heads", "context"} == found["transformer"]
    assert "skip-every" in found["model"]
    options = {option.name.replace("_", "-") for option in fields(RivalOptions)}
    assert not options & found["model"]
    assert options <= set().union(*found.values())


def test_the_help_names_the_cells_that_have_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "text", "--help"])
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    for option in ("recurrent_dropout", "block_dropout", "zoneout_cell", "candidate_dropout", *OF_LSTM):
        found = re.search(rf"--model\.{option.replace('_', '-')}\b(.*?)( --model\.(?!no-)| [╭─ ]*\w+ options )", text)
        assert found is not None
        named = set(re.findall(r"\w+", found[1])) & {*RIVALS, "stack"}
        assert named - {"stack"} == set(cells_with(option)), option
        assert ("stack" in named) == hasattr(TextModel(), option), option


class TestPathSGD:
    OPTIONS = "--recipe fast --optimizer path_sgd --decay constant"

    def test_it_trains_and_goes_on_where_it_was(self, tmp_path: Path) -> None:
        model = "--data python-docs --batch-size 8 --window 10 --max-valid-windows 2 --model.cell relu"
        model += " --model.num-layers 1 --model.hidden-size 16"
        whole, halves = tmp_path / "whole", tmp_path / "halves"
        main(f"train text {model} {self.OPTIONS} --max-steps 8 --out {whole}".split())
        main(f"train text {model} {self.OPTIONS} --max-steps 4 --out {halves}".split())
        main(f"train text --resume {halves} --max-steps 8".split())
        one, two = (json.loads((run / "result.json").read_text()) for run in (whole, halves))
        assert one["test_bpc"] == two["test_bpc"]
        losses = [row["train_bpc"] for row in read_metrics(whole) if "train_bpc" in row]
        assert losses[-1] < 6.5

    def test_it_is_for_networks_of_relus(self) -> None:
        update = Update(recipe="fast", optimizer="path_sgd")
        for cell in ("relu", "irnn", "skipping"):
            TextConfig("python-docs", TextModel(1, 8, cell=cell), update=update).check()
        with pytest.raises(UsageError, match=r"path_sgd: the cell 'lstm' does not consist of ReLUs; .*relu"):
            TextConfig("python-docs", TextModel(1, 8, cell="lstm"), update=update).check()
        with pytest.raises(UsageError, match="--optimizer path_sgd: for recurrent networks of ReLUs; images take sgd"):
            ImageConfig(update=update).check()

    def test_a_step_does_not_depend_on_how_units_are_scaled(self) -> None:
        """Neither does the function: see the tests of PathSGD itself; here, that all weights are on paths."""
        torch.manual_seed(1)
        model = cast(RivalRNN, TextConfig("ptb", TextModel(2, 6, cell="relu")).build("abcd").double())
        scaled = copy.deepcopy(model)
        with torch.no_grad():  # the unit 0 of the first layer, four times as large
            first, second = (cast(Vanilla, layer) for layer in scaled.rnn.layers)
            for weight in (first.input.weight, first.input.bias, first.recurrent):
                weight[0] *= 4
            first.recurrent[:, 0] /= 4
            second.input.weight[:, 0] /= 4
        x = torch.randint(4, (5, 3))
        for network in (model, scaled):
            optimizer = path_sgd(network, 5, 0.01)
            optimizer.param_groups[0]["scale"] = 1.0  # the length of SGD's step does depend on it
            network(x)[0].square().sum().backward()
            optimizer.step()
        torch.testing.assert_close(model(x)[0], scaled(x)[0])


def test_settings_survive_json() -> None:
    config = TextConfig("ptb", TextModel(cell="lstm", rival=RivalOptions(zoneout=0.1, layer_norm=True)))
    assert TextConfig.from_json(config.to_json()).to_json() == config.to_json()
    assert "rival" not in TextConfig("ptb").to_json()["model"]
    assert "zoneout-0.1" in TextConfig("ptb", TextModel(cell="lstm", rival=RivalOptions(zoneout=0.1))).directory.name


@pytest.mark.parametrize("recipe", ["paper", "fast"])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            TextModel(rival=RivalOptions(zoneout=0.1)),
            "--model.zoneout: .* stack .*got 0.1; .* takes rnn, relu, irnn",
        ),
        (
            TextModel(cell="lstm", skip_every=None),
            "--model.skip-every: the cell 'lstm' has no such option, got None; it has dropout, layer_norm",
        ),
        (
            TextModel(cell="mlstm", rival=RivalOptions(depth=3)),
            "--model.depth: the cell 'mlstm' has no such option, got 3",
        ),
        (
            TextModel(cell="rnn", recurrent_dropout=0.1),
            "--model.recurrent-dropout: the cell 'rnn' has no such option, got 0.1; it has dropout, zoneout",
        ),
        (TextModel(2, cell="lstm", dropout=1.0), r"--model.dropout: expected a rate in \[0, 1\), got 1.0; the cell is"),
        (TextModel(params=float("nan")), "--model.params: expected a finite number of at least 1, got nan"),
        (TextModel(params=float("inf"), cell="mlstm"), "--model.params: expected a finite number .*, got inf"),
        (
            TextModel(cell="transformer", hidden_size=30),
            "--model.hidden-size: expected a multiple of 8, twice the number of heads, got 30",
        ),
        (
            TextModel(1, cell="gru", dropout=0.1, block_dropout=0.1),
            "--model.block-dropout: the cell 'gru' has no such option, got 0.1; it has dropout, candidate_dropout",
        ),
        (TextModel(0, cell="lstm"), "--model.num-layers: expected at least 1, got 0; the cell is 'lstm'"),
        (TextModel(2, 0, cell="gru"), "--model.hidden-size: expected at least 1, got 0; the cell is 'gru'"),
        (TextModel(2, 0, cell="mlstm"), "--model.hidden-size: expected .* at least 1, got 0; the cell is 'mlstm'"),
        (TextModel(cell="delta_rnn", dropout=1.0), "--model.dropout: expected a rate"),
    ],
)
def test_options_that_a_cell_does_not_have(model: TextModel, message: str, recipe: Literal["paper", "fast"]) -> None:
    with pytest.raises(UsageError, match=message):
        TextConfig("python-docs", model, update=Update(recipe=recipe)).check()


@pytest.mark.parametrize(
    ("cell", "batch_size", "window", "devices", "advice"),
    [
        ("lstm", 1, 50, 1, "take 2 or more$"),
        ("lstm", 2, 50, 2, "take 4 or more$"),
        ("indrnn", 1, 1, 1, "take 2 or more, or a longer --window$"),
        ("lstm", 4, 1, 2, None),
        ("indrnn", 1, 2, 1, None),
    ],
)
def test_batch_norm_has_something_to_compare(
    cell: RivalName, batch_size: int, window: int, devices: int, advice: str | None
) -> None:
    config = TextConfig(
        "python-docs",
        TextModel(1, 8, cell=cell, rival=RivalOptions(batch_norm=True)),
        batch_size=batch_size,
        window=window,
        machine=Machine(devices=devices),
    )
    if advice is None:
        config.check()
        return
    with pytest.raises(UsageError, match=rf"^--batch-size {batch_size}: batch norm compares .* each has 1; {advice}"):
        config.check()
