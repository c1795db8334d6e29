"""The fast recipe: its schedule, its optimisers, clipping, the pin, and resuming to the last bit."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bipolar.lab.errors import UsageError
from bipolar.lab.training.guard import Guard
from bipolar.lab.training.images import ImageConfig, ImageModel, image_task, train_images
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.text import TextConfig, TextModel, text_task, train_text
from bipolar.lab.training.update import Update
from bipolar.optim import Muon
from tests.helpers.interruptions import KilledError, die, interrupt_at
from tests.helpers.text_runs import metrics, text_config

FAST = Update(recipe="fast")
IMAGES = ImageConfig(
    data="digits",
    model=ImageModel(depth=10, widen_factor=1, activation="elu", dropout=0.1),
    machine=Machine(accelerator="cpu"),
    update=FAST,
    batch_size=32,
    train_images=320,
    test_images=100,
    max_epochs=2,
    checkpoint_every=3,
)


class TestSchedule:
    @pytest.mark.parametrize("decay", ["linear", "cosine", "cooldown", "constant"])
    def test_it_rises_to_the_peak_and_falls(self, decay: Any) -> None:
        update = Update(recipe="fast", warm_up=0.2, decay=decay)
        factors = [update.factor(step, 100) for step in range(101)]
        assert factors[:20] == pytest.approx([(step + 1) / 20 for step in range(20)])
        assert max(factors) == 1
        assert factors[20:] == sorted(factors[20:], reverse=True)
        assert factors[100] == pytest.approx(float(decay == "constant"))

    def test_a_long_rise_leaves_the_cooldown_the_rest(self) -> None:
        update = Update(recipe="fast", warm_up=0.9, decay="cooldown")
        assert [update.factor(step, 100) for step in (89, 90, 95, 100)] == pytest.approx([1, 1, 0.5, 0])

    def test_shapes(self) -> None:
        assert Update(recipe="fast", warm_up=0.2).factor(60, 100) == pytest.approx(0.5)
        assert Update(recipe="fast", warm_up=0, decay="cosine").factor(25, 100) == pytest.approx(
            (1 + math.cos(math.pi / 4)) / 2
        )
        cooldown = Update(recipe="fast", warm_up=0, decay="cooldown")
        assert [cooldown.factor(step, 100) for step in (0, 60, 80)] == pytest.approx([1, 1, 0.5])
        assert FAST.factor(0, 1) == 1  # a run of one step has no time to rise


class TestText:
    def test_defaults(self) -> None:
        fast = TextConfig(model=TextModel(36, 64), update=FAST, max_steps=500)
        assert fast.recipe.lr == pytest.approx(0.5 / 64)
        assert fast.recipe.validate_every == 1
        assert replace(fast, lr=1e-3).recipe.lr == 1e-3
        assert replace(fast, update=replace(FAST, optimizer="muon")).recipe.lr == 0.02

    def test_the_rate_is_lower_over_epochs(self) -> None:
        """Those of a known text are counted; so many steps are 1.99 of Penn Treebank, or 2.01."""
        for steps, adam, muon, path_sgd in ((1586, 0.5, 0.02, 1.0), (1603, 0.25, 0.0025, 1.0)):
            found = TextConfig(model=TextModel(36, 64), update=FAST, max_steps=steps)
            assert found.recipe.lr == pytest.approx(adam / 64)
            assert replace(found, update=replace(FAST, optimizer="muon")).recipe.lr == muon
            assert replace(found, update=replace(FAST, optimizer="path_sgd")).recipe.lr == path_sgd
        assert TextConfig(model=TextModel(36, 64), update=FAST).recipe.lr == pytest.approx(0.25 / 64)
        own = TextConfig("mine.txt", TextModel(36, 64), update=FAST, max_steps=10**6)
        assert own.recipe.lr == pytest.approx(0.5 / 64)

    @pytest.mark.parametrize(
        ("settings", "rates"),
        [
            ({"max_steps": 1500}, (0.0, 0.0, 0.0)),
            ({"max_steps": 3600}, (0.01, 0.01, 0.0)),
            ({"max_steps": 3600, "train_share": 0.5}, (0.025, 0.025, 0.0)),
            ({"max_steps": 3600, "max_epochs": 1}, (0.0, 0.0, 0.0)),
            ({"max_steps": 3600, "data": "text8"}, (0.0, 0.0, 0.0)),
            ({"max_steps": 3600, "data": "my.txt"}, (0.0, 0.0, 0.0)),
            ({"max_epochs": 3, "data": "my.txt"}, (0.01, 0.01, 0.0)),
            ({"max_epochs": 3, "model": TextModel(cell="lstm")}, (0.0, 0.0, 0.0)),
            ({"max_epochs": 3, "model": TextModel(dropout=0.3)}, (0.3, 0.01, 0.0)),
            ({"max_epochs": 20}, (0.025, 0.025, 0.0)),
            ({}, (0.05, 0.025, 0.025)),
        ],
    )
    def test_dropout_by_the_length_of_training(self, settings: Any, rates: tuple[float, ...]) -> None:
        found = TextConfig(update=FAST, **settings).recipe.rates
        assert (found.dropout, found.recurrent_dropout, found.block_dropout) == rates

    @pytest.mark.parametrize("optimizer", ["adam", "muon", "sgd"])
    def test_rates_clipping_and_an_end(self, corpus: Path, tmp_path: Path, optimizer: Any) -> None:
        update = Update(recipe="fast", optimizer=optimizer, clip=0.01, adam_lr=1e-3, warm_up=0.5)
        config = text_config(corpus, tmp_path / "run", update=update, lr=0.02, max_steps=8)
        task = text_task(config)
        task.setup(config.machine.fabric())
        assert isinstance(task.optimizer.optimizer, Muon) is (optimizer == "muon")
        for p in task.model.parameters():
            p.grad = torch.ones_like(p)
        assert task.schedule is not None
        task.schedule.before(1, 8)
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in task.model.parameters() if p.grad is not None))
        assert norm == pytest.approx(0.01, rel=1e-3)
        peaks = [0.02, 1e-3] if optimizer == "muon" else [0.02]
        assert [group["lr"] for group in task.optimizer.param_groups] == pytest.approx([peak / 2 for peak in peaks])

    @pytest.mark.parametrize(("precision", "iterates_in"), [("32-true", None), ("bf16-mixed", torch.bfloat16)])
    def test_muon_iterates_in_the_precision_of_the_run(
        self, corpus: Path, tmp_path: Path, precision: Any, iterates_in: torch.dtype | None
    ) -> None:
        machine = Machine(accelerator="cpu", precision=precision)
        task = text_task(text_config(corpus, tmp_path, update=replace(FAST, optimizer="muon"), machine=machine))
        task.setup(machine.fabric())
        assert task.optimizer.param_groups[0]["ns_dtype"] is iterates_in

    @pytest.mark.parametrize("optimizer", ["adam", "muon"])
    def test_weight_decay_shrinks_the_weights(self, corpus: Path, tmp_path: Path, optimizer: Any) -> None:
        config = text_config(corpus, tmp_path, update=replace(FAST, optimizer=optimizer), lr=0.1, weight_decay=0.5)
        task = text_task(config)
        task.setup(config.machine.fabric())
        weight = next(p for p in task.model.parameters() if p.ndim == 2 and p.requires_grad)
        weight.grad, before = torch.zeros_like(weight), weight.detach().clone()
        task.optimizer.step()
        torch.testing.assert_close(weight.detach(), before * (1 - 0.1 * 0.5))

    def test_runs_without_weight_decay_are_found_as_before(self, corpus: Path, tmp_path: Path) -> None:
        config = text_config(corpus, tmp_path, update=FAST)
        assert "weight_decay" not in config.to_json()
        assert replace(config, weight_decay=0.1).to_json()["weight_decay"] == 0.1

    @pytest.mark.parametrize(
        ("update", "decay", "message"),
        [
            (Update(), 0.1, "--weight-decay 0.1: the paper's recipe has no such setting; add --recipe fast"),
            (FAST, -1.0, "--weight-decay -1.0: expected 0 or more"),
            (FAST, math.nan, "--weight-decay nan: expected 0 or more"),
            (replace(FAST, optimizer="path_sgd"), 0.1, "--weight-decay 0.1: path-SGD has no such setting"),
        ],
    )
    def test_bad_weight_decay(self, update: Update, decay: float, message: str) -> None:
        model = TextModel(1, 8, cell="relu")
        with pytest.raises(UsageError, match=message):
            TextConfig(model=model, update=update, weight_decay=decay).check()

    def test_killed_and_resumed(self, corpus: Path, tmp_path: Path) -> None:
        config = text_config(corpus, tmp_path / "whole", update=replace(FAST, optimizer="muon"), lr=0.02, max_steps=30)
        train_text(config, show=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Guard, "check", interrupt_at(17, die))
            with pytest.raises(KilledError):
                train_text(replace(config, out=tmp_path / "run"), show=False)
        train_text(TextConfig(resume=tmp_path / "run"), show=False)
        assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")

    def test_the_rate_is_not_halved(self, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = text_config(corpus, tmp_path / "run", update=FAST)
        task = text_task(config)
        task.setup(config.machine.fabric())
        monkeypatch.setattr(task, "evaluate", lambda _: 3.0)
        rows = [task.after_epoch(epoch, final=False) for epoch in range(config.recipe.halve_from + 2)]
        assert {row["lr"] for row in rows if row is not None} == {5e-3}

    def test_halving_is_refused_where_there_is_none(self) -> None:
        for halve_from in (3, 5):
            with pytest.raises(UsageError, match=f"--halve-from {halve_from}: a part of the paper's recipe"):
                TextConfig(update=FAST, halve_from=halve_from).check()
            TextConfig(halve_from=halve_from).check()
        TextConfig.from_json(TextConfig(update=FAST).to_json()).check()  # stored with the value it would have


class TestImages:
    def test_filters_keep_their_norm_and_a_killed_run_goes_on(self, tmp_path: Path) -> None:
        train_images(replace(IMAGES, out=tmp_path / "whole"), show=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Guard, "check", interrupt_at(14, die))
            with pytest.raises(KilledError):
                train_images(replace(IMAGES, out=tmp_path / "run"), show=False)
        train_images(ImageConfig(resume=tmp_path / "run"), show=False)
        assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
        stored = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
        assert (stored["lr"], stored["label_smoothing"], stored["update"]["recipe"]) == (0.05, 0.1, "fast")

    @pytest.mark.parametrize("pin", [True, False])
    def test_the_pin(self, pin: bool) -> None:
        task = image_task(replace(IMAGES, pin=pin))
        task.setup(IMAGES.machine.fabric())
        weight = next(p for p in task.model.parameters() if p.ndim == 4)
        before = weight.detach().flatten(1).norm(dim=1)
        task.start_epoch(0)
        loss, _ = task.loss(0)
        loss.backward()
        task.optimizer.step()
        assert torch.allclose(weight.detach().flatten(1).norm(dim=1), before, rtol=1e-5) is pin


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (Update(clip=1.0), "--clip 1.0: the paper's recipe has no such setting; add --recipe fast"),
        (Update(optimizer="muon"), "--optimizer muon: the paper's recipe"),
        (Update(recipe="fast", clip=-1.0), "--clip -1.0: expected a positive number"),
        (Update(recipe="fast", adam_lr=0.0), "--adam-lr 0.0: expected a positive number"),
        (Update(recipe="fast", adam_lr=1e300), r"--adam-lr 1e\+300: expected a positive number below 1e\+09"),
        (
            Update(recipe="fast", optimizer="sgd", adam_lr=0.1),
            "--adam-lr 0.1: the rate beside Muon's; add --optimizer muon",
        ),
        (Update(recipe="fast", warm_up=1.0), "--warm-up 1.0: expected a share of the run"),
    ],
)
def test_bad_settings(update: Update, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(IMAGES, update=update).check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": True}, "--search: a part of the paper's recipe"),
        ({"ease_in": 10}, "--ease-in 10: a part of the paper's recipe"),
        ({"label_smoothing": 1.0}, "--label-smoothing 1.0: expected a share"),
    ],
)
def test_bad_combinations(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(IMAGES, **options).check()
