"""The paper's experiments: what they run, what they record, and that nothing is run twice."""

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from matplotlib.figure import Figure

import bipolar
from bipolar.lab import mistakes
from bipolar.lab.paper import ITEMS, aliasing, figure3, figure4, shortcut, table1, table5
from bipolar.lab.reproduce import trials
from bipolar.lab.reproduce.executors import Executor, in_processes, on_ray, one_after_another
from bipolar.lab.reproduce.item import Computation, Item, Training
from bipolar.lab.reproduce.outcomes import Outcome
from bipolar.lab.reproduce.reproduction import Reproduction, record_again
from bipolar.lab.reproduce.scales import SCALES, Scale
from bipolar.lab.reproduce.trials import trial_of, with_seed
from bipolar.lab.training.guard import Guard
from bipolar.lab.training.images import ImageConfig, ImageModel
from bipolar.lab.training.text import TextConfig, TextModel, train_text
from bipolar.models import CharRNN
from tests.lab.training.test_text import KilledError

TINY = TextConfig(
    "python-docs", TextModel(4, 8), max_steps=4, batch_size=8, window=10, max_valid_windows=2, checkpoint_every=2
)


TRAININGS = {name: item for name, item in ITEMS.items() if isinstance(item, Training)}


@pytest.mark.parametrize("name", TRAININGS)
def test_every_run_of_every_scale_can_be_built(name: str) -> None:
    for scale in SCALES:
        runs = TRAININGS[name].runs(scale)
        assert runs
        for config in list(runs.values())[:: len(runs) // 6 + 1]:
            config.check()  # builds the model, without memory
        assert len({trial_of(config, Path()).directory for config in runs.values()}) == len(runs)


def test_the_papers_scale_is_the_papers() -> None:
    runs = table1.runs("paper")
    c = runs["36: belu"]
    assert (c.data, c.recipe.lr, c.max_epochs, c.model.hidden_size, c.model.dropout) == ("ptb", 2e-4, 200, 256, 0.05)
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


def test_the_study_of_shortcuts() -> None:
    runs = shortcut.runs("small")
    assert runs["relu, clean"] == table5.runs("small")["wrn: relu"]  # one run for both
    config = with_seed(runs["relu, rectified"], 3, image_outcome())
    assert isinstance(config, ImageConfig)
    assert (config.lr, config.seed, config.search, config.model.shortcut) == (0.02, 3, False, "rectified")
    diverged = image_outcome(status="did not converge", reason="the loss is not finite")
    assert with_seed(runs["relu, clean"], 2, diverged) is None  # there is no rate to take
    first = shortcut.collect({name: image_outcome() for name in runs} | {"elu, clean": diverged})
    assert first["relu, clean"]["test_error"] == 10.0
    assert first["elu, clean"]["test_error"] == "did not converge: the loss is not finite"
    second = shortcut.collect({"relu, clean": image_outcome(test_error=14.0)})
    points = [line.get_xdata() for line in shortcut.draw([first, second]).axes[0].get_lines()]
    assert list(points[0]) == [10.0, 14.0]
    assert list(points[1]) == [12.0]


def tiny(name: str = "tiny", seeds: int = 1, **options: Any) -> Training:
    configs = {kind: replace(TINY, model=replace(TINY.model, nonlinearity=kind)) for kind in ("relu", "belu")}
    return Training(
        name=name,
        title="A tiny one",
        published={"relu": 1.0},
        runs=lambda _: configs,
        collect=lambda outcomes: {k: o.result.get("best_valid_bpc") for k, o in outcomes.items()},
        seeds={"quick": seeds, "small": 1, "paper": 1},
        **options,
    )


def reproduce(item: Item, out: Path, executor: Executor = one_after_another, **options: Any) -> dict[str, Any]:
    path, *_ = Reproduction([item], "quick", out, **options).run(executor)
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def test_results_are_recorded_beside_what_was_published(tmp_path: Path) -> None:
    record = reproduce(tiny(), tmp_path)
    assert record["complete"]
    assert record["published"] == {"relu": 1.0}
    assert record["runs"]["belu"]["config"]["model"]["nonlinearity"] == "belu"
    assert record["runs"]["belu"]["result"]["status"] == "finished"
    assert {"commit", "machine", "versions", "seconds"} <= record.keys()
    assert str(tmp_path) not in (tmp_path / "tiny.json").read_text()


def test_seeds(tmp_path: Path) -> None:
    record = reproduce(tiny(seeds=2), tmp_path)
    assert record["by_seed"].keys() == {"1", "2"}
    assert record["results"] == record["by_seed"]["1"] != record["by_seed"]["2"]
    assert record["runs"]["belu, seed 2"]["config"]["seed"] == 2
    more = reproduce(tiny(seeds=2), tmp_path, seeds=3)
    assert more["by_seed"].keys() == {"1", "2", "3"}
    assert more["by_seed"]["2"] == record["by_seed"]["2"]


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("run again")


def test_a_finished_run_is_shared_and_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reproduce(tiny(), tmp_path)
    monkeypatch.setattr("bipolar.lab.reproduce.trials.train_text", refuse)
    assert reproduce(tiny("another"), tmp_path)["results"] == first["results"]


def test_a_computation_is_done_once_and_again_if_it_was_not_finished(tmp_path: Path) -> None:
    calls = []

    def compute(scale: Scale, data_dir: Path | None) -> dict[str, Any]:
        calls.append(scale)
        return {"a": math.inf}

    item = Computation(name="sum", title="A sum", compute=compute)
    for _ in range(2):
        assert reproduce(item, tmp_path)["results"] == {"a": "inf"}
    assert calls == ["quick"]
    (tmp_path / "sum.json").write_text("{half")
    assert reproduce(item, tmp_path)["complete"]
    assert len(calls) == 2


def test_what_there_is_is_recorded_after_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = train_text, iter(range(9))

    def second_dies(config: TextConfig, **options: Any) -> Any:
        if next(calls) == 1:
            raise KilledError
        return original(config, **options)

    monkeypatch.setattr(trials, "train_text", second_dies)
    with pytest.raises(KilledError):
        reproduce(tiny(), tmp_path)
    record = json.loads((tmp_path / "tiny.json").read_text())
    assert not record["complete"]
    assert list(record["results"]) == ["relu"]
    assert reproduce(tiny(), tmp_path)["complete"]


def test_a_run_that_diverges_is_a_result(tmp_path: Path) -> None:
    trial = trial_of(replace(TINY, lr=1e4, max_steps=60, patience=50), tmp_path)
    trials.run(trial, None)
    outcome = trial.outcome()
    assert not outcome.converged
    value = table1.collect({"4: relu": outcome})["4"]["relu"]["valid_bpc"]
    assert value.startswith("did not converge: the loss")


def test_a_figure_of_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "MARGIN", -1.0)  # four steps are too few to be better than a guess
    model = ImageModel("orn", 10, 1, orientations=4)
    base = ImageConfig(
        data="digits", model=model, train_images=64, test_images=20, batch_size=32, max_epochs=2, search=True
    )
    configs = {name: replace(base, model=replace(model, activation=name)) for name in ("relu", "brelu")}
    item = replace(figure3.ITEM, runs=lambda _: configs, seeds={"quick": 2})
    record = reproduce(item, tmp_path)
    assert record["complete"]
    assert len(record["results"]["brelu"]["test_error"]) == 2
    rate = record["by_seed"]["1"]["relu"]["lr"]
    assert record["by_seed"]["2"]["relu"]["lr"] == rate  # found once
    assert record["runs"]["relu, seed 2"]["config"]["search"] is False
    assert (tmp_path / "figure3.svg").exists()


@contextlib.contextmanager
def one_is_killed(runs: Path, workers: Callable[[], list[int]]) -> Iterator[None]:
    """Kills a worker as soon as any run has written something; that it did is asserted."""
    killed: list[int] = []

    def kill_one() -> None:
        while not killed:
            if any(path.stat().st_size for path in runs.glob("*/metrics.jsonl")):
                for pid in workers()[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            os.sched_yield()

    thread = threading.Thread(target=kill_one, daemon=True)
    thread.start()
    yield
    thread.join()
    assert killed


@pytest.mark.parametrize("content", ['{"status": "fin', "[]", ""])
def test_a_result_that_is_not_whole_is_made_again(tmp_path: Path, content: str) -> None:
    whole = reproduce(tiny(), tmp_path)["results"]
    first = next(iter(tmp_path.glob("runs/*/result.json")))
    first.write_text(content)
    (tmp_path / "table1.json").write_text('{"scale": "quick", "complete": true}')
    assert not Reproduction([tiny()], "quick", tmp_path).done(tiny())
    record_again([tiny()], tmp_path)
    assert reproduce(tiny(), tmp_path)["results"] == pytest.approx(whole)


def test_a_record_remembers_how_many_seeds_there_are_to_be(tmp_path: Path) -> None:
    work = Reproduction([tiny()], "quick", tmp_path, seeds=2)
    one_after_another(list(work.first_trials()), None, lambda trial: None)
    work.record(tiny())
    record_again([tiny()], tmp_path)
    record = json.loads((tmp_path / f"{tiny().name}.json").read_text())
    assert (record["complete"], record["seeds"], list(record["by_seed"])) == (False, 2, ["1"])


def test_a_picture_is_drawn_again_from_the_record_alone(tmp_path: Path) -> None:
    reproduce(tiny(), tmp_path)
    shutil.rmtree(tmp_path / "runs")
    record, picture = tmp_path / f"{tiny().name}.json", tmp_path / f"{tiny().name}.svg"
    drawn = replace(tiny(), draw=lambda seeds: Figure())
    before = record.read_bytes()
    assert not picture.exists()
    record_again([drawn], tmp_path)
    assert picture.read_text().startswith("<?xml")
    assert record.read_bytes() == before


class TestManyProcesses:
    """The numbers are those of one process; a worker that is killed at work costs nothing but time."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def alone(cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
        longer = {k: replace(c, max_steps=200) for k, c in tiny().runs("quick").items()}
        request.cls.item = replace(tiny(), runs=lambda _: longer)
        request.cls.expected = reproduce(request.cls.item, tmp_path_factory.mktemp("alone"))["results"]

    item: Training
    expected: dict[str, Any]

    def test_two_workers_and_one_that_is_killed(self, tmp_path: Path) -> None:
        with one_is_killed(tmp_path / "runs", lambda: [p.pid for p in active_children() if p.pid]):
            together = reproduce(self.item, tmp_path, in_processes(2))
        assert together["results"] == pytest.approx(self.expected)

    def test_ray_with_two_workers_and_one_that_is_killed(self, tmp_path: Path) -> None:
        ray = pytest.importorskip("ray")

        def workers() -> list[int]:
            return [pid for pid in descendants() if "ray::_files_of" in command_of(pid)]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Ray's own
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
            try:
                with one_is_killed(tmp_path / "runs", workers):
                    together = reproduce(self.item, tmp_path, on_ray(None))
            finally:
                ray.shutdown()
        assert together["results"] == pytest.approx(self.expected)

    def test_the_parent_is_killed_and_called_again(self, tmp_path: Path) -> None:
        arguments = [sys.executable, "-m", "bipolar.lab", "reproduce", "table2", "--out", str(tmp_path / "killed")]
        with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while not list((tmp_path / "killed").glob("runs/*/metrics.jsonl")):
                assert process.poll() is None
                os.sched_yield()
            process.kill()
        killed, whole = (
            json.loads(Reproduction([ITEMS["table2"]], "quick", tmp_path / n).run(one_after_another)[0].read_text())
            for n in ("killed", "whole")
        )
        assert killed["results"] == whole["results"]

    def test_workers_end_with_their_parent(self, tmp_path: Path) -> None:
        arguments = [sys.executable, "-m", "bipolar.lab", "reproduce", "figure5", "--workers", "2", "--out"]
        with subprocess.Popen(
            [*arguments, str(tmp_path / "killed")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while not list((tmp_path / "killed").glob("runs/*/metrics.jsonl")):
                assert process.poll() is None
                os.sched_yield()
            workers = descendants(process.pid)
            process.kill()
        assert workers
        wait_until(lambda: not any("spawn_main" in command_of(pid) for pid in workers), seconds=20)


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


def descendants(of: int | None = None) -> list[int]:
    found, left = [], [os.getpid() if of is None else of]
    while left:
        parent = left.pop()
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    found.append(int(path.parent.name))
                    left.append(int(path.parent.name))
    return found


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


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
        paths = Reproduction([figure4.ITEM], "quick", tmp_path).run(one_after_another)
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
        draw = ITEMS[name].draw
        assert draw is not None
        results: dict[str, Any] = dict.fromkeys(keys, run) | {keys[0]: broken}
        figure = draw([results])
        figure.savefig(tmp_path / f"{name}.svg")
        legends = [axes.get_legend() for axes in figure.axes]
        labels = [text.get_text() for legend in legends if legend for text in legend.get_texts()]
        assert sum("did not converge" in label for label in labels) == 1
