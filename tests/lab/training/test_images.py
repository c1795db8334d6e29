"""Training on images: the recipe, resuming to the last bit, and the search for a rate."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import bipolar
from bipolar.lab.cli import main
from bipolar.lab.data.images import ImageSet
from bipolar.lab.data.pictures import Pictures
from bipolar.lab.errors import UsageError
from bipolar.lab.training.guard import Guard
from bipolar.lab.training.images import ImageConfig, ImageModel, ImageTask, evaluate_images, image_task, train_images
from bipolar.lab.training.images.search import found_in
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.processes import without_fabric
from tests.helpers.interruptions import KilledError, ask_to_stop, die, interrupt_at
from tests.helpers.text_runs import metrics

MODEL = ImageModel(depth=10, widen_factor=1)
CPU = Machine(accelerator="cpu")
SMALL = ImageConfig(
    data="digits",
    model=MODEL,
    machine=CPU,
    batch_size=32,
    train_images=320,
    test_images=100,
    lr=0.05,
    max_epochs=3,
    checkpoint_every=4,
    log_every=5,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    result = train_images(replace(SMALL, out=out))
    assert result["status"] == "finished"
    return out


def test_what_a_run_leaves(finished: Path) -> None:
    rows = metrics(finished)
    epochs = [row for row in rows if "train_error" in row]
    assert [row["step"] for row in epochs] == [10, 20, 30]
    assert [row["train_loss"] for row in rows if "train_loss" in row][-1] < 2.3
    result = json.loads((finished / "result.json").read_text())
    assert result["test_error"] == epochs[-1]["test_error"] == rows[-1]["test_error"]
    assert result["lr"] == 0.05
    assert [row["lr"] for row in epochs] == pytest.approx([0.05, 0.01, 0.002])
    stored = json.loads((finished / "config.json").read_text())
    assert (stored["classes"], len(stored["mean"]), len(stored["std"])) == ([*"0123456789"], 1, 1)
    assert "best_step" not in result  # the last epoch's error is the one that counts
    assert evaluate_images(finished, "test") == pytest.approx(
        {"test_error": result["test_error"], "test_loss": result["test_loss"]}
    )
    assert 0 < evaluate_images(finished, "train")["train_error"] < 100
    with pytest.raises(UsageError, match="--split valid: expected one of train, test"):
        evaluate_images(finished, "valid")


def test_killed_in_an_epoch_and_resumed(finished: Path, tmp_path: Path) -> None:
    """Dropout, shifts, the order of the images, and the training error that is counted along."""
    config = replace(SMALL, out=tmp_path / "run")
    for step in (15, 27):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Guard, "check", interrupt_at(step, die))
            with pytest.raises(KilledError):
                train_images(config)
    train_images(ImageConfig(resume=tmp_path / "run"))
    assert metrics(tmp_path / "run") == metrics(finished)


class TestRecipe:
    def test_the_papers_defaults(self) -> None:
        c = ImageConfig()
        assert (c.data, c.peak, c.momentum, c.weight_decay, c.batch_size, c.length.max_epochs) == (
            "cifar10",
            0.08,
            0.9,
            5e-4,
            128,
            200,
        )
        model = c.model
        assert (model.network, model.depth, model.widen_factor, model.dropout, model.norm) == ("wrn", 28, 10, 0.3, None)

    def test_the_rate_is_eased_in_and_divided_by_five_twice(self) -> None:
        config, steps = ImageConfig(lr=0.5), 390
        total = config.length.total(steps)
        assert total == 78_000
        rates = {step: config.rate_at(step, total) for step in (0, 999, 1999, 5000)}
        assert rates == pytest.approx({0: 0.5 / 2000, 999: 0.25, 1999: 0.5, 5000: 0.5})
        for epoch, factor in ((119, 1), (120, 5), (159, 5), (160, 25), (199, 25)):
            assert config.rate_at(epoch * steps, total) == pytest.approx(0.5 / factor)
        # a shorter run: the same fractions, and a tenth for easing in
        assert [config.rate_at(step, 100) for step in (0, 4, 9, 59, 60, 80)] == pytest.approx(
            [0.05, 0.25, 0.5, 0.5, 0.1, 0.02]
        )
        assert replace(config, ease_in=0).rate_at(0, 100) == 0.5

    def test_each_epoch_has_its_own_dropout_and_shifts(self) -> None:
        task = self.task(replace(SMALL, train_images=32))
        task.model.train()
        losses = []
        for epoch in range(2):
            task.start_epoch(epoch)
            task.order = torch.arange(32)  # the same images: all else may differ
            losses.append(task.loss(0)[0].item())
        assert losses[0] != losses[1]
        seeds = {
            task._seed(number, purpose) for number in range(100) for purpose in ("images", "dropout 0", "dropout 1")
        }
        assert len(seeds) == 300

    def test_a_run_that_ends_within_an_epoch(self, tmp_path: Path) -> None:
        train_images(
            replace(SMALL, out=tmp_path, max_steps=13, lr=1e-9, patience=1000, model=replace(MODEL, norm="batch"))
        )
        rows = [row for row in metrics(tmp_path) if "train_error" in row]
        assert [row["step"] for row in rows] == [10, 13]
        assert rows[1]["train_error"] > 50  # of 3 batches; of 10 it could not be

    def test_every_image_once_an_epoch_in_another_order(self) -> None:
        task = self.task(replace(SMALL, train_images=330))
        assert task.steps_per_epoch == 10
        orders = []
        for epoch in range(2):
            task.start_epoch(epoch)
            assert sorted(task.order.tolist()) == list(range(330))
            orders.append(task.order)
        assert not torch.equal(*orders)

    def test_the_optimiser_and_the_start_are_the_papers(self) -> None:
        task = self.task(SMALL)
        (group,) = task.optimizer.param_groups
        assert (group["momentum"], group["nesterov"], group["weight_decay"]) == (0.9, True, 5e-4)
        batch = task.data.normalised(task.data.train.images)
        seen: list[float] = []
        for module in task.model.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.register_forward_hook(lambda m, args, output: seen.append(output.detach().var().item()))
        task.model.eval()(batch)
        assert len(seen) == 9
        assert all(value == pytest.approx(1, rel=0.35) for value in seen)  # another batch than LSUV's

    def test_what_lsuv_measures_is_a_choice(self) -> None:
        """The first layer, by theory: a ReLU has variance 0.34 and second moment 0.5 where its input has variance 1."""
        norms = {}
        for at in ("output", "activation"):
            for target in ("variance", "second_moment"):
                model = replace(MODEL, activation="relu", at=at, lsuv=target)
                task = self.task(replace(SMALL, model=model))
                norms[at, target] = task.model.get_parameter("stem.weight").norm().item()
        start = norms["output", "variance"]
        assert norms["activation", "variance"] / start == pytest.approx(0.341**-0.5, rel=0.3)
        assert norms["activation", "second_moment"] / start == pytest.approx(2**0.5, rel=0.3)
        assert norms["activation", "second_moment"] < norms["activation", "variance"]
        # with a norm there is nothing to scale
        plain = self.task(replace(SMALL, model=replace(MODEL, norm="batch")))
        assert plain.model.get_parameter("stages.0.0.conv1.weight").std().item() == pytest.approx(
            (2 / (16 * 9)) ** 0.5, rel=0.1
        )

    def task(self, config: ImageConfig) -> ImageTask:
        task = image_task(config)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            task.setup(CPU.fabric())
        return task

    @pytest.mark.parametrize("activation", ["relu", "brelu"])
    def test_the_error_counted_along_is_that_of_the_batches(self, activation: str) -> None:
        config = replace(SMALL, model=replace(MODEL, activation=activation, dropout=0.0), train_images=64)
        task = self.task(config)
        task.start_epoch(0)
        task.model.train()
        wrong = 0
        for index in range(2):
            loss, value = task.loss(index)
            assert value.item() == loss.item()
            generator = task._generator(index, "images")
            chosen = task.order[32 * index : 32 * index + 32]
            images = task.data.normalised(task.data.varied(task.data.train, chosen, generator))
            wrong += int((task.model(images).argmax(1) != task.data.train.labels[chosen]).sum())
        row = task.after_epoch(0, final=False)
        assert row is not None
        assert row["train_error"] == pytest.approx(100 * wrong / 64)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"batch_size": 500}, "--batch-size 500: there are only 320 images to train on"),
            ({"lr": -1.0}, "--lr -1.0: expected a positive number"),
            ({"lr": 1e300}, "--lr 1e\\+300: expected a positive number, below 1e\\+09"),
            ({"weight_decay": math.nan}, "--weight-decay nan: expected 0 or more"),
            ({"momentum": 1.5}, "--momentum 1.5: expected 0 or more, below 1"),
            ({"test_images": 9999}, "--test-images 9999: expected 1 to 359"),
            ({"model": ImageModel(dropout=math.nan)}, "--model.dropout: expected 0 to 1, got nan"),
            ({"model": ImageModel(activation="crelu")}, "--model.activation: .*keeps the number of channels"),
            ({"model": ImageModel(widen_factor=10**12)}, "--model: "),
            ({"model": ImageModel("vgg")}, "--model.network: expected one of 'wrn', 'orn', 'conv', got 'vgg'"),
            ({"machine": Machine(accelerator="tpu")}, "--accelerator tpu"),
            ({"data": "mnist"}, "--data mnist: neither one of cifar10, digits nor a directory"),
            ({"train_images": 0}, "--train-images 0: expected at least 1"),
            ({"model": ImageModel(depth=29)}, "--model.depth: expected 6n"),
            ({"model": ImageModel(activation="rellu")}, "--model.activation: .*'rellu'.*'relu'"),
            ({"model": ImageModel("conv", 28, 1, shortcut="rectified")}, "--model.shortcut: the network 'conv' has no"),
            ({"model": ImageModel(skip=True)}, "--model.skip: the network 'wrn' has no such option"),
            ({"model": ImageModel(whiten=True)}, "--model.whiten: the network 'wrn' has no such option"),
            ({"model": ImageModel(head=0.0)}, "--model.head: expected a positive number, got 0"),
            ({"gain": 0.2}, "--gain 0.2: for filters that are pinned, by --recipe fast"),
            ({"classes_per_batch": 0}, "--classes-per-batch 0: expected at least 1"),
            ({"model": ImageModel("orn", reduction=5)}, "--model.reduction: expected a divisor of 16, got 5"),
        ],
    )
    def test_bad_arguments(self, tmp_path: Path, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            train_images(replace(SMALL, out=tmp_path / "run", **options))
        assert not (tmp_path / "run").exists()

    def test_a_search_that_is_refused_leaves_nothing(self, tmp_path: Path) -> None:
        for options in ({"machine": Machine(accelerator="tpu")}, {"batch_size": 5000}):
            with pytest.raises(UsageError):
                train_images(replace(SMALL, out=tmp_path / "run", search=True, **options))
            assert not (tmp_path / "run").exists()


class TestSearch:
    def test_the_rate_is_halved_until_training_does_not_diverge(self, tmp_path: Path) -> None:
        out = tmp_path / "search"
        config = replace(SMALL, out=out, search=True, lr=8.0, train_images=64, max_epochs=12)
        with pytest.MonkeyPatch.context() as patch:  # stopped during the second attempt, and resumed
            attempts = iter(range(100))
            original = Guard.check

            def check(self: Guard, step: int, loss: float) -> Any:
                if step == 1 and next(attempts) == 1:
                    raise KilledError
                return original(self, step, loss)

            patch.setattr(Guard, "check", check)
            with pytest.raises(KilledError):
                train_images(config)
        assert not (out / "result.json").exists()
        with pytest.raises(UsageError, match="the search has not ended yet"):
            evaluate_images(out, "test")
        result = train_images(ImageConfig(resume=out))
        assert result["status"] == "finished"
        rates = [attempt["lr"] for attempt in result["attempts"]]
        assert rates == [8.0 / 2**i for i in range(len(rates))]
        assert len(rates) > 2
        assert [attempt["status"] for attempt in result["attempts"]] == ["did not converge"] * (len(rates) - 1) + [
            "finished"
        ]
        assert result["lr"] == rates[-1]
        assert result["seconds"] == pytest.approx(sum(attempt["seconds"] for attempt in result["attempts"]), abs=0.06)
        assert json.loads((out / "result.json").read_text()) == result
        assert evaluate_images(out, "test")["test_error"] == pytest.approx(result["test_error"])
        before = sorted(path.stat().st_mtime_ns for path in out.rglob("result.json"))[:-1]
        assert train_images(config) == result  # nothing is run again
        assert sorted(path.stat().st_mtime_ns for path in out.rglob("result.json"))[:-1] == before

    @pytest.mark.parametrize("name", ["../other", "/etc", "lr-1/.."])
    def test_a_result_that_names_a_directory_elsewhere(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "result.json").write_text(json.dumps({"run": name}))
        with pytest.raises(UsageError, match="expected the name of a directory in"):
            found_in(tmp_path)

    def test_a_search_that_is_asked_to_stop_stops(self, tmp_path: Path) -> None:
        config = replace(SMALL, out=tmp_path, search=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Guard, "check", interrupt_at(2, ask_to_stop))
            assert train_images(config)["status"] == "stopped"
        assert [path.name for path in tmp_path.glob("lr-*")] == ["lr-0.05"]
        assert not (tmp_path / "result.json").exists()

    def test_a_run_that_is_slow_ends_the_search(self, tmp_path: Path) -> None:
        """A short run is judged at its end."""
        config = replace(SMALL, out=tmp_path / "alone", lr=1e-9, train_images=64)
        assert train_images(config)["status"] == "finished"
        result = train_images(replace(config, out=tmp_path / "search", search=True))
        assert result["status"] == "did not converge"
        assert result["reason"] == "slow: the loss is no better than a uniform guess after 6 steps"
        assert [(attempt["lr"], attempt["reason"]) for attempt in result["attempts"]] == [(1e-9, result["reason"])]

    def test_it_gives_up(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bipolar.lab.training.images.search.HALVINGS", 1)
        config = replace(SMALL, out=tmp_path, search=True, lr=1e6, train_images=64)
        result = train_images(config)
        assert result["status"] == "did not converge"
        assert [attempt["lr"] for attempt in result["attempts"]] == [1e6, 5e5]


def test_a_finished_run_becomes_longer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_images(replace(SMALL, out=tmp_path / "run", train_images=64, max_epochs=5))
    capsys.readouterr()
    result = train_images(ImageConfig(resume=tmp_path / "run", max_steps=20))
    said = " ".join(capsys.readouterr().err.split())
    assert (result["step"], result["epoch"]) == (20, 10)
    sentence = "that of a run of 20 steps: 0.05, after 0.002 until here; it drops after step 12 and 16"
    assert sentence in said
    rates = {row["step"]: row["lr"] for row in metrics(tmp_path / "run") if "lr" in row}
    assert [rates[step] for step in (4, 10, 12, 14, 20)] == pytest.approx([0.05, 0.002, 0.05, 0.01, 0.002])
    search = replace(SMALL, out=tmp_path / "search", search=True, train_images=64, max_epochs=2)
    train_images(search)
    with pytest.raises(UsageError, match="a search; its runs become longer one by one"):
        train_images(ImageConfig(resume=tmp_path / "search", max_epochs=4))


def test_the_model_of_a_search(tmp_path: Path) -> None:
    train_images(replace(SMALL, out=tmp_path, search=True))
    model = bipolar.load(tmp_path, bipolar.models.WideResNet)
    found = torch.load(next(tmp_path.glob("lr-*/checkpoints/step-*.pt")), weights_only=True)["model"]
    assert all(torch.equal(value, found[name]) for name, value in model.state_dict().items())


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Red and blue squares with noise, of different sizes."""
    generator = np.random.default_rng(0)
    for number in range(40):
        colour, size = number % 2, (10 + number % 3, 12)
        pixels = generator.integers(0, 90, (*size, 3), dtype=np.uint8)
        pixels[..., 2 * colour] += 150
        path = tmp_path / "squares" / ("red", "blue")[colour] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return tmp_path / "squares"


def test_images_of_ones_own(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    options = "--model.depth 10 --model.widen-factor 1 --batch-size 8 --max-epochs 6 --lr 0.01 --model.dropout 0"
    main(f"train images --data squares --image-size 8 {options} --accelerator cpu --out {out}".split())
    stored = json.loads((out / "config.json").read_text())
    assert stored["classes"] == ["blue", "red"]
    assert (stored["config"]["image_size"], stored["data_dir"]) == (8, str(tmp_path))
    result = json.loads((out / "result.json").read_text())
    assert result["test_error"] <= 25
    monkeypatch.chdir(tmp_path.parent)
    assert evaluate_images(out, "test")["test_error"] == pytest.approx(result["test_error"])
    (folders / "red" / "0.png").unlink()
    with pytest.raises(UsageError, match=r"these are not the images that .*run began with; --data-dir"):
        evaluate_images(out, "test")
    model = bipolar.load(out, bipolar.models.WideResNet)
    assert model(torch.zeros(1, 3, 8, 8)).shape == (1, 2)


def test_the_start_of_the_plain_network() -> None:
    """A whitened stem, LSUV on the rest, and a small head; the paper's networks start as they did."""
    c = ImageConfig("cifar10", model=ImageModel("conv", 28, 1, activation="elu", whiten=True, head=0.1), batch_size=40)
    c = replace(c, model=replace(c.model, at="activation"), machine=CPU)
    generator = torch.Generator().manual_seed(0)
    smooth = torch.nn.functional.interpolate(torch.rand(40, 3, 6, 6, generator=generator), 16, mode="bilinear")
    pictures = Pictures((255 * smooth).byte().permute(0, 2, 3, 1).contiguous(), torch.arange(40) % 10)
    mean, std = torch.full((3,), 128.0), torch.full((3,), 50.0)
    data = ImageSet("smooth", pictures, pictures, mean, std, tuple("0123456789"), shift=2, mirror=True)
    heads, x = [], data.normalised(pictures.images)
    for config in (c, replace(c, model=replace(c.model, head=1.0))):
        task = ImageTask(config, data)
        with torch.random.fork_rng():
            torch.manual_seed(1)
            task.setup(config.machine.fabric())
        model: Any = without_fabric(task.model)
        heads.append(model.head.weight.detach().clone())
        with torch.no_grad():
            stem = model.stem(x)
            block = model.sames[0](model.downs[0](model.activation(stem)))
        assert stem.var(dim=(0, 2, 3))[:8].sub(1).abs().max() < 0.05  # the largest components; eps damps the smallest
        assert float(block.var()) == pytest.approx(1, abs=0.02)
    torch.testing.assert_close(heads[0], 0.1 * heads[1])


def test_the_plain_network(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the fast recipe, on batches of one class; tested on several views, which a result reports apart."""
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    options = "--model.network conv --model.widen-factor 1 --model.activation elu --recipe fast --views shifted"
    main(
        f"train images --data squares --image-size 8 {options} --classes-per-batch 1 --batch-size 8 --max-epochs 4 "
        f"--gain 0.2 --accelerator cpu --out {out}".split()
    )
    result = json.loads((out / "result.json").read_text())
    assert result["test_error"] <= 25
    assert 0 <= result["views_test_error"] <= 25
    found = evaluate_images(out, "test")
    for metric in ("test_error", "views_test_error"):
        assert found[metric] == pytest.approx(result[metric])
    assert bipolar.load(out, bipolar.models.ConvNet)(torch.zeros(1, 3, 8, 8)).shape == (1, 2)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    options = "--data digits --model.network orn --model.orientations 4 --model.depth 10 --model.widen-factor 1"
    main(
        f"train images {options} --model.activation belu --train-images 64 --test-images 20 --batch-size 32 "
        f"--max-epochs 1 --out {out} --accelerator cpu".split()
    )
    assert "status finished" in capsys.readouterr().out
    main(["eval", str(out), "--split", "test"])
    assert "test_error" in capsys.readouterr().out
    stored = json.loads((out / "config.json").read_text())
    assert stored["task"] == "images"
    assert stored["config"]["model"]["network"] == "orn"
