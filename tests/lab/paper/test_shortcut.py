"""The study of shortcuts: its runs, its results, its picture."""

from typing import Any

from bipolar.lab.paper import shortcut, table5
from bipolar.lab.reproduce.outcomes import Outcome
from bipolar.lab.reproduce.trials import with_seed
from bipolar.lab.training.images import ImageConfig


def image_outcome(**result: Any) -> Outcome:
    finished = {"status": "finished", "test_error": 10.0, "lr": 0.02} | result
    return Outcome({"lr": 0.08}, finished, [{"step": 10, "epoch": 0, "train_loss": 1.5}], {})


def test_the_study_of_shortcuts() -> None:
    runs = shortcut.runs("paper")
    assert runs["relu, clean"] == table5.runs("paper")["wrn: relu"]  # one run for both
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
