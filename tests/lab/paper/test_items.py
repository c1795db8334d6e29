"""All items: their runs can be built, and their pictures drawn."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bipolar
from bipolar.lab.paper import ITEMS, aliasing
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.scales import SCALES, Scale
from bipolar.lab.reproduce.trials import trial_of

TRAININGS = {name: item for name, item in ITEMS.items() if isinstance(item, Training)}


@pytest.fixture(scope="module")
def one_start_an_activation() -> Iterator[None]:
    """Stacks draw their start once for each activation: to find its gain takes most of the time of building one."""
    original, seen = bipolar.StackedRNN.reset_parameters, set[str]()

    def reset_parameters(stack: bipolar.StackedRNN) -> None:
        if str(stack.activation) not in seen:
            seen.add(str(stack.activation))
            original(stack)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bipolar.StackedRNN, "reset_parameters", reset_parameters)
        yield


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.usefixtures("one_start_an_activation")
def test_every_run_of_every_scale_can_be_built(name: str, scale: Scale) -> None:
    runs = TRAININGS[name].runs(scale)
    assert runs
    for config in runs.values():
        config.check()  # builds the model, without memory
    assert len({trial_of(config, Path()).directory for config in runs.values()}) == len(runs)


def test_pictures_can_be_drawn(tmp_path: Path) -> None:
    run = {"status": "finished", "train_bpc": [(1, 5.0), (2, 4.0)]}
    broken = {"status": "did not converge", "train_bpc": []}
    names = {
        "figure5": [f"{depth} layers, {kind}" for depth in (4, 36) for kind in ("skips", "no skips")],
        "lsuv": list(TRAININGS["lsuv"].runs("quick")),
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


@pytest.mark.parametrize("name", [name for name, item in ITEMS.items() if item.draw])
def test_every_picture_says_what_to_see(name: str) -> None:
    assert ITEMS[name].caption.endswith(".")
