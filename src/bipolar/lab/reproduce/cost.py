"""What a run will cost on this machine, from a short calibration."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from bipolar.lab.data import data_directory
from bipolar.lab.data.files import TEXT8_START_SIZE
from bipolar.lab.data.text import DEFAULT_SPLIT, NAMES, python_docs
from bipolar.lab.reproduce.trials import task_of
from bipolar.lab.training.config import RunConfig
from bipolar.lab.training.images import ImageConfig, ImageModel
from bipolar.lab.training.speed import seconds_per_step
from bipolar.lab.training.text import TextConfig, TextModel

#: Sizes of the data, for estimates where it is not at hand: characters to train on, images, and their sides.
CHARACTERS = {"ptb": 5_101_618, "text8": 90_000_000, "text8-74M": round(DEFAULT_SPLIT[0] * TEXT8_START_SIZE)}
IMAGES = {"cifar10": (50_000, 32), "digits": (1_438, 8)}
#: Forward and backward together cost this many times the forward pass.
PASSES = 3


@dataclass(frozen=True)
class Step:
    """One training step: its arithmetic, and how many operations are launched."""

    flops: float
    launches: float


def steps_of(config: RunConfig, data_dir: Path | None = None) -> int:
    """The steps of a run; of a search those of one attempt."""
    if isinstance(config, ImageConfig):
        images = config.train_images or IMAGES.get(config.data, (0, 0))[0]
        return config.length.total(max(1, images // config.batch_size))
    if not isinstance(config, TextConfig):
        raise TypeError(f"config: expected one of text or images, got {config!r}")
    return config.length.total(max(1, _characters(config, data_dir) // (config.batch_size * config.window)))


def _characters(config: TextConfig, data_dir: Path | None) -> int:
    if config.data == "python-docs":
        return int(DEFAULT_SPLIT[0] * len(python_docs()))
    if config.data in NAMES:
        return CHARACTERS[config.data]
    paths = (Path(config.data), data_directory(data_dir) / config.data)
    sizes = [path.stat().st_size for path in paths if path.is_file()]
    return int(config.split[0] * sizes[0]) if sizes else CHARACTERS["ptb"]


@functools.cache
def step_of(config: RunConfig) -> Step:
    if isinstance(config, ImageConfig):
        side, channels = IMAGES.get(config.data, (0, 32))[1], 1 if config.data == "digits" else 3
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            config.model.build(channels).eval()(torch.empty(1, channels, side, side))
        flops = PASSES * config.batch_size * counter.get_total_flops()
        return Step(flops, config.model.depth)
    if not isinstance(config, TextConfig):
        raise TypeError(f"config: expected one of text or images, got {config!r}")
    model = config.model
    gates = {"stack": 1, "rnn": 1, "gru": 3, "lstm": 4}[model.cell]
    products = PASSES * 2 * 2 * gates * model.hidden_size**2
    cells = model.num_layers * config.window
    fronts = model.num_layers + config.window  # the cells of a diagonal are launched together
    return Step(products * cells * config.batch_size, fronts)


class Calibration:
    """Seconds of a step, as a + b for each floating-point operation, from two measured steps of each kind of task."""

    def __init__(self) -> None:
        text = TextConfig("python-docs", TextModel(36, 16), batch_size=8, window=50)
        images = ImageConfig(data="digits", model=ImageModel(depth=16, widen_factor=1), batch_size=8)
        self.fits = {
            TextConfig: _fit(text, replace(text, model=TextModel(8, 192), batch_size=64, window=30)),
            ImageConfig: _fit(images, replace(images, model=ImageModel(depth=10, widen_factor=2), batch_size=512)),
        }

    def seconds(self, config: RunConfig, data_dir: Path | None = None) -> float:
        """What a run takes, validation and all but the first attempt of a search not counted."""
        return self.fits[type(config)](step_of(config)) * steps_of(config, data_dir)


@functools.cache
def calibration() -> Calibration:
    """That of this process, measured once."""
    return Calibration()


def _fit(small: RunConfig, large: RunConfig) -> Callable[[Step], float]:
    light, heavy = (seconds_per_step(task_of(config), config.machine) for config in (small, large))
    a, b = step_of(small), step_of(large)
    for_launch = light / a.launches  # a step of hardly any arithmetic
    for_flop = max(heavy - for_launch * b.launches, 0.1 * heavy) / b.flops
    return lambda step: for_launch * step.launches + for_flop * step.flops
