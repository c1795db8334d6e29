"""Estimates of how long a run takes on this machine, without training."""

import functools
import string
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from bipolar.lab.data import data_directory
from bipolar.lab.data.files import CHARACTERS
from bipolar.lab.data.places import DEFAULT_SPLIT, TEXTS
from bipolar.lab.data.text import python_docs
from bipolar.lab.training.config import RunConfig
from bipolar.lab.training.images import ImageConfig, ImageModel
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.lab.training.text.config import VOCABULARY, DropoutRates

#: Training images of data sets, which need not be present for an estimate, and their side.
IMAGES = {"cifar10": (50_000, 32), "digits": (1_438, 8)}
#: The arithmetic of the forward and the backward pass, relative to the forward pass.
PASSES = 3
#: Small operations that take as long as a diagonal of a stack, or a layer of a residual network, of hardly any
#: arithmetic: forward, backward and optimiser, with the Python around them. As measured on a CPU.
OPERATIONS_OF_A_FRONT, OPERATIONS_OF_A_LAYER = 250, 400
#: The speed of a layer's arithmetic relative to one large matrix product. As measured on a CPU.
EFFICIENCY = 0.7
#: Settings of a network for images that do not change its products: many runs share their number.
WITHOUT_ARITHMETIC = ("activation", "dropout", "norm", "pattern", "skip", "whiten", "head", "lsuv", "at", "centre")


@dataclass(frozen=True)
class Step:
    """One training step: its arithmetic, and how many small operations it launches."""

    flops: float
    operations: float


def steps_of(config: RunConfig, data_dir: Path | None = None) -> int:
    """The number of steps of a run; of a search, those of one attempt."""
    if isinstance(config, ImageConfig):
        images = config.train_images or IMAGES.get(config.data, (0, 0))[0]
        return config.length.total(max(1, images // config.batch_size))
    if not isinstance(config, TextConfig):
        raise TypeError(f"config: expected one of text or images, got {config!r}")
    characters = config.train_share * _characters(config, data_dir)
    return config.length.total(max(1, int(characters) // (config.batch_size * config.window)))


def _characters(config: TextConfig, data_dir: Path | None) -> int:
    if config.data == "python-docs":
        return int(DEFAULT_SPLIT[0] * len(python_docs()))
    if config.data in TEXTS:
        return CHARACTERS[config.data]
    paths = (Path(config.data), data_directory(data_dir) / config.data)
    sizes = [path.stat().st_size for path in paths if path.is_file()]
    return int(config.split[0] * sizes[0]) if sizes else CHARACTERS["ptb"]


@functools.cache
def step_of(config: RunConfig) -> Step:
    if isinstance(config, ImageConfig):
        side, channels = IMAGES.get(config.data, (0, 32))[1], 1 if config.data == "digits" else 3
        sizes = replace(config.model, **{name: getattr(ImageModel, name) for name in WITHOUT_ARITHMETIC})
        flops = PASSES * config.batch_size * _flops(sizes, channels, side)
        return Step(flops, OPERATIONS_OF_A_LAYER * config.model.depth)
    if not isinstance(config, TextConfig):
        raise TypeError(f"config: expected one of text or images, got {config!r}")
    layers, window = config.model.num_layers, config.window
    fronts = layers + window  # of the stack: diagonals, whose cells are launched together
    launches = fronts if config.model.cell == "stack" else layers * window
    flops = PASSES * 2 * _weights(config.model) * window * config.batch_size
    return Step(flops, OPERATIONS_OF_A_FRONT * launches)


@functools.cache
def _flops(model: ImageModel, channels: int, side: int) -> int:
    """The arithmetic of the forward pass of one image."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        network, image = model.build(channels).eval(), torch.empty(1, channels, side, side)
    with FlopCounterMode(display=False) as counter:
        network(image)
    return int(counter.get_total_flops())


@functools.cache
def _weights(model: TextModel) -> int:
    """The weights of the layers, each of which every character is multiplied with once."""
    if model.is_rival:
        with torch.device("meta"):
            rates = DropoutRates(
                *(rate or 0.0 for rate in (model.dropout, model.recurrent_dropout, model.block_dropout))
            )
            return sum(p.numel() for p in model.build(string.printable[:VOCABULARY], rates).rnn.parameters())
    gates, width = {"stack": 1, "rnn": 1, "gru": 3, "lstm": 4}[model.cell], model.width(VOCABULARY)
    lowest = width if model.cell == "stack" else VOCABULARY  # the width of what it reads
    return int(gates * width * (lowest + width + (model.num_layers - 1) * 2 * width))


@dataclass(frozen=True)
class Speed:
    """Seconds of a small operation, whatever its arithmetic, and of a floating-point operation in a large product."""

    operation: float
    flop: float

    def seconds(self, config: RunConfig, data_dir: Path | None = None) -> float:
        """The time of a run with its looks at the validation error, but without validation after an epoch; of a search,
        the time of one attempt."""
        step, steps = step_of(config), steps_of(config, data_dir)
        return (self.operation * step.operations + self.flop * step.flops / EFFICIENCY) * (
            steps + _looks(config, steps)
        )


def _looks(config: RunConfig, steps: int) -> float:
    """The looks at the validation error, as steps: each of their windows is a pass forward."""
    if not isinstance(config, TextConfig) or config.look_every is None:
        return 0.0
    weights = 1 if config.update.average is None else 2
    return steps // config.look_every * (config.max_valid_windows or 0) * weights / PASSES


@functools.cache
def speed() -> Speed:
    """The speed of this machine, measured once in a fraction of a second."""
    device, size = ("cuda", 4096) if torch.cuda.is_available() else ("cpu", 512)
    small, large = torch.ones(8, 16, device=device), torch.ones(size, size, device=device)
    return Speed(_seconds("x.relu()", small), _seconds("x @ x", large) / (2 * size**3))


def _seconds(statement: str, x: Tensor) -> float:
    from torch.utils.benchmark import Timer  # takes setuptools along

    timer = Timer(statement, globals={"x": x}, num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=0.02).median)
