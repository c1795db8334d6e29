"""The paper's experiments: what they run, what they record, and that nothing is run twice."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as tF

import bipolar
from bipolar.lab import mistakes
from bipolar.lab.paper import EXPERIMENTS, aliasing, figure3, figure4, shortcut, table1, table5
from bipolar.lab.paper.experiment import SCALES, Experiment, Outcome, directory_of, perform, reproduce
from bipolar.lab.training.images import ImageConfig, ImageModel
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.models import CharRNN

TINY = TextConfig(
    "python-docs", TextModel(4, 8), max_steps=4, batch_size=8, window=10, max_valid_windows=2, checkpoint_every=2
)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_run_of_every_scale_can_be_built(name: str) -> None:
    experiment = EXPERIMENTS[name]
    for scale in SCALES:
        runs = experiment.runs(scale)
        assert runs
        for config in list(runs.values())[:: len(runs) // 6 + 1]:
            config.check()  # builds the model, without memory
    assert len({directory_of(config, Path()) for config in runs.values()}) == len(runs)


def test_the_papers_scale_is_the_papers() -> None:
    runs = table1.runs("paper")
    c = runs["36: belu"].filled()
    assert (c.data, c.lr, c.max_epochs, c.model.hidden_size, c.model.dropout) == ("ptb", 2e-4, 200, 256, 0.05)
    assert (c.model.recurrent_dropout, c.model.block_dropout) == (0.025, 0.025)
    assert {name for name in runs if name.startswith("144")} == {"144: belu"}
    small = table1.runs("small")
    for config in small.values():
        with torch.device("meta"):
            model = CharRNN(50, config.model.hidden_size, config.model.num_layers)
        assert abs(model.num_parameters / 0.3e6 - 1) < 0.03


def test_the_papers_scale_is_the_papers_for_images_too() -> None:
    runs = table5.runs("paper")
    assert len(runs) == 8
    c = runs["orn: belu"]
    assert (c.data, c.lr, c.max_epochs, c.batch_size, c.search) == ("cifar10", 0.08, 200, 128, True)
    assert (c.model.network, c.model.depth, c.model.widen_factor, c.model.dropout) == ("orn", 28, 10, 0.3)
    assert (c.model.norm, c.model.shortcut, c.momentum, c.weight_decay) == (None, "clean", 0.9, 5e-4)


def image_outcome(**result: Any) -> Outcome:
    finished = {"status": "finished", "test_error": 10.0, "lr": 0.02} | result
    return Outcome({"lr": 0.08}, finished, [{"step": 10, "epoch": 0, "train_loss": 1.5}], {})


def test_the_study_of_shortcuts_takes_the_rate_of_its_first_seed() -> None:
    first = shortcut.runs("small")
    outcomes = {name: image_outcome() for name in first}
    diverged = "elu, clean: seed 1"
    outcomes[diverged] = image_outcome(status="did not converge", reason="the loss is not finite", lr=0.08 / 2**12)
    more = shortcut.then("small", outcomes)
    assert len(more) == 2 * 5
    config = more["relu, rectified: seed 3"]
    assert (config.lr, config.seed, config.search, config.model.shortcut) == (0.02, 3, False, "rectified")
    assert first["relu, clean: seed 1"] == table5.runs("small")["wrn: relu"]  # one run for both
    outcomes |= {name: image_outcome(test_error=14.0) for name in more}
    found = shortcut.collect(outcomes)
    assert found["relu, clean"]["mean_test_error"] == pytest.approx(38 / 3)
    assert found["relu, clean"]["std_test_error"] == pytest.approx((16 / 3) ** 0.5)
    assert found["elu, clean"]["seeds"]["1"]["test_error"] == "did not converge: the loss is not finite"
    assert found["elu, clean"]["mean_test_error"] is None
    shortcut.draw(found)


def test_runs_that_depend_on_others_and_a_figure_of_errors(tmp_path: Path) -> None:
    model = ImageModel("orn", 10, 1, orientations=4)
    base = ImageConfig(
        data="digits", model=model, train_images=64, test_images=20, batch_size=32, max_epochs=2, search=True
    )
    experiment = Experiment(
        "tiny",
        "A tiny one",
        lambda _: {"relu": replace(base, model=replace(model, activation="relu"))},
        figure3.collect,
        {},
        figure3.draw,
        lambda _, outcomes: {"brelu": replace(base, lr=outcomes["relu"].result["lr"] / 4)},
    )
    path, *pictures = reproduce(experiment, tmp_path)
    record = json.loads(path.read_text())
    assert record["complete"]
    assert set(record["results"]) == {"relu", "brelu"}
    assert len(record["results"]["brelu"]["test_error"]) == 2
    assert record["results"]["brelu"]["lr"] == record["results"]["relu"]["lr"] / 4
    assert {picture.suffix for picture in pictures} >= {".png", ".svg"}


def tiny(name: str = "tiny") -> Experiment:
    configs = {kind: replace(TINY, model=replace(TINY.model, nonlinearity=kind)) for kind in ("relu", "belu")}
    return Experiment(name, "A tiny one", lambda _: configs, table1.collect, {"relu": 1.0})


def test_results_are_recorded_beside_what_was_published(tmp_path: Path) -> None:
    (path,) = reproduce(tiny(), tmp_path)
    record = json.loads(path.read_text())
    assert record["complete"]
    assert record["published"] == {"relu": 1.0}
    assert record["runs"]["belu"]["config"]["model"]["nonlinearity"] == "belu"
    assert record["runs"]["belu"]["result"]["status"] == "finished"
    assert {"commit", "machine", "versions", "seconds"} <= record.keys()
    assert str(tmp_path) not in path.read_text()


def test_a_finished_run_is_shared_and_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce(tiny(), tmp_path)

    def refuse(*_: Any) -> None:
        raise AssertionError("run again")

    monkeypatch.setattr("bipolar.lab.paper.experiment.train_text", refuse)
    (path,) = reproduce(tiny("another"), tmp_path)
    assert json.loads(path.read_text())["complete"]


def test_a_run_that_diverges_is_a_result(tmp_path: Path) -> None:
    outcome = perform(replace(TINY, lr=1e4, max_steps=60, patience=50), tmp_path, None)
    assert not outcome.converged
    value = table1.collect({"4: relu": outcome})["4"]["relu"]["valid_bpc"]
    assert value.startswith("did not converge: the loss")


class TestFigure4:
    def test_norms_are_those_of_the_gradient(self) -> None:
        """Against finite differences: the gradient on one cell's output, by nudging it."""
        torch.manual_seed(0)
        model = CharRNN(5, 6, 5, skip_every=2).double()
        x, y = torch.randint(5, (4, 3)), torch.randint(5, (4, 3))
        norms = figure4.gradient_norms(model, x, y, None)
        assert len(norms) == 5
        assert len(norms[0]) == 4

        def loss(delta: torch.Tensor, layer: int, t: int) -> torch.Tensor:
            rnn, columns = model.rnn, {}
            h = [torch.zeros(3, 6, dtype=torch.float64) for _ in range(5)]
            for step in range(4):
                below = start = model.embedding[x[step]]
                for i, (u, w, b) in enumerate(rnn.layers()):
                    start = below if i % 2 == 0 else start
                    h[i] = rnn.activation(h[i] @ w.mT + below @ u.mT + b)
                    if i in (1, 3):
                        h[i] = h[i] + rnn.skip_scale * start
                    if (i, step) == (layer, t):
                        h[i] = h[i] + delta
                    below = h[i]
                columns[step] = below
            return tF.cross_entropy(model.decoder(columns[3]), y[-1])

        for layer, t in ((0, 0), (1, 2), (3, 3), (4, 1)):
            delta = torch.zeros(3, 6, dtype=torch.float64, requires_grad=True)
            (gradient,) = torch.autograd.grad(loss(delta, layer, t), delta)
            assert norms[layer][t] == pytest.approx(gradient.norm().item(), rel=1e-6)

    def test_straight_down_and_at_45_degrees(self) -> None:
        straight, slanted = [[0.0] * 50 for _ in range(36)], [[0.0] * 50 for _ in range(36)]
        straight[0][-1] = slanted[0][-36] = 1.0
        found = figure4.summary({"a": straight, "b": slanted})
        assert found["a"]["mean_lag_of_the_lowest_layer"] == 0
        assert found["b"]["mean_lag_of_the_lowest_layer"] == 35

    def test_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(figure4, "BATCHES", 1)
        monkeypatch.setattr(figure4, "LAYERS", 5)
        monkeypatch.setitem(figure4.SETTINGS, "quick", ("python-docs", 8, 4, 10, 1e-3))
        paths = figure4.reproduce(tmp_path, "quick", None)
        assert [path.name for path in paths] == ["figure4.json", "figure4.svg", "figure4.png"]
        assert all(path.exists() for path in paths)


class TestMistakes:
    def test_the_values_are_right_and_the_gradients_wrong(self) -> None:
        torch.manual_seed(0)
        for nonlinearity, mistake in (("elu", "after skip"), ("elu", "not through time"), ("belu", "not through time")):
            right = bipolar.StackedRNN(6, 6, 8, nonlinearity, dtype=torch.float64)
            wrong = bipolar.StackedRNN(6, 6, 8, nonlinearity, dtype=torch.float64)
            wrong.load_state_dict(right.state_dict())
            mistakes.mistaken(wrong, mistake)
            x = torch.randn(5, 3, 6, dtype=torch.float64)
            outputs = [rnn(x) for rnn in (right, wrong)]
            torch.testing.assert_close(outputs[0], outputs[1])
            for output, _ in outputs:
                output.sum().backward()
            # the highest block's last layer has a wrong derivative, or its past has
            assert not torch.allclose(right.weight_hh_l3.grad, wrong.weight_hh_l3.grad)

    def test_one_step_has_no_gradient_through_time_to_lose(self) -> None:
        right = bipolar.StackedRNN(6, 6, 8, "belu", dtype=torch.float64)
        wrong = bipolar.StackedRNN(6, 6, 8, "belu", dtype=torch.float64)
        wrong.load_state_dict(right.state_dict())
        mistakes.mistaken(wrong, "not through time")
        for rnn in (right, wrong):
            rnn(torch.ones(1, 3, 6, dtype=torch.float64))[0].sum().backward()
        torch.testing.assert_close(right.weight_ih_l0.grad, wrong.weight_ih_l0.grad)

    def test_what_cannot_be_mistaken(self) -> None:
        with pytest.raises(ValueError, match="'after skip' is about ELU"):
            mistakes.mistaken(bipolar.StackedRNN(4, 4, 4, "belu"), "after skip")
        with pytest.raises(ValueError, match="only without dropout"):
            mistakes.mistaken(bipolar.StackedRNN(4, 4, 4, "elu", dropout=0.1), "after skip")


def test_pictures_can_be_drawn(tmp_path: Path) -> None:
    run = {"status": "finished", "train_bpc": [(1, 5.0), (2, 4.0)]}
    broken = {"status": "did not converge", "train_bpc": []}
    names = {
        "figure5": [f"{depth} layers, {kind}" for depth in (4, 36) for kind in ("skips", "no skips")],
        "figure6": ["relu", "brelu", "relu, second moment", "selu", "bselu"],
        "aliasing": [f"{a}, {b}" for a, b in aliasing.RUNS],
    }
    for name, keys in names.items():
        draw = EXPERIMENTS[name].draw
        assert draw is not None
        results: dict[str, Any] = dict.fromkeys(keys, run)
        if name != "figure5":
            results[keys[0]] = broken
        draw(results).savefig(tmp_path / f"{name}.svg")
