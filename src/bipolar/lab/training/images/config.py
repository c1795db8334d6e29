"""Settings of a run on images, and its learning rate at every step."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import tyro

from bipolar._tools.choices import Encoding, Norm, Pattern, Shortcut, Statistic
from bipolar.lab.data.places import IMAGES
from bipolar.lab.errors import UsageError
from bipolar.lab.training.config import DEEPEST, RunConfig
from bipolar.lab.training.flags import ActivationFlag, FloatFlag, IntFlag
from bipolar.lab.training.update import LARGEST

if TYPE_CHECKING:
    from bipolar.models import ConvNet, OrientedResponseNet, WideResNet

#: The paper eases the rate in over so many steps, a run that is too short for it over a tenth of its steps.
EASE_IN, EASE_IN_SHARE = 2000, 0.1
#: The rate at its peak, by the paper's recipe and by the fast one, and the fast one's smoothing of labels.
PEAK, PEAK_OF_FAST, SMOOTHING_OF_FAST = 0.08, 0.05, 0.1
#: The rate is divided at these fractions of a run, epochs 120 and 160 of 200, by this number.
DROPS, DIVISOR = (0.6, 0.8), 5


NetworkName: TypeAlias = Literal["wrn", "orn", "conv"]
#: the views of an image that is tested
Views: TypeAlias = Literal["one", "mirrored", "shifted"]

#: The options of the networks: of all, of each, and those of the start that not all have.
OF_ALL_NETWORKS = ("widen_factor", "activation", "norm", "pattern")
OPTIONS: dict[NetworkName, tuple[str, ...]] = {
    "wrn": ("depth", "dropout", "shortcut"),
    "orn": ("depth", "dropout", "shortcut", "orientations", "reduction", "encoding"),
    "conv": ("skip",),
}
STARTS: dict[NetworkName, tuple[str, ...]] = {"wrn": (), "orn": (), "conv": ("whiten",)}


def options_of_others(network: NetworkName) -> set[str]:
    """The options of a model that a network does not have."""
    known = {name: {*OPTIONS[name], *STARTS[name]} for name in OPTIONS}
    return set().union(*known.values()) - known[network]


@dataclass(frozen=True)
class ImageModel:
    """The model."""

    network: NetworkName = "wrn"
    """A wide residual network, an oriented response network, or a plain one of few convolutions, for small budgets."""
    depth: int = 28
    """Layers of the first two: 6n + 4."""
    widen_factor: int = 10
    """How many times 16, 32 and 64 feature maps the stages have; of the plain network 16, 64 and 64."""
    activation: ActivationFlag = "brelu"
    dropout: float = 0.3
    """Dropout within the blocks."""
    norm: Annotated[Norm | None, tyro.conf.arg(help_behavior_hint="")] = None
    """Batch norm. Default: no norm, as in the paper."""
    shortcut: Shortcut = "clean"
    """What a shortcut carries: see the item ``shortcut``."""
    skip: bool = False
    """A skip connection in each block of the plain network."""
    whiten: bool = False
    """Start the first layer of the plain network as a whitening of its patches."""
    head: float = 1.0
    """Start the last layer at so many times its size: a small one leaves the other layers time."""
    pattern: Pattern = "alternate"
    """Which feature maps are flipped."""
    orientations: int = 8
    """Orientations of an oriented response network."""
    reduction: int = 4
    """By what the number of its features is divided."""
    encoding: Encoding | None = "align"
    """How it encodes orientations before the last layer."""
    lsuv: Statistic = "variance"
    """What LSUV sets to 1, where there is no norm."""
    at: Literal["output", "activation"] = "output"
    """Where LSUV measures it."""
    centre: bool = False
    """Let LSUV also centre the input of every activation, by the bias before it."""

    @property
    def size(self) -> str:
        """Such as wrn-28-10."""
        return (
            f"{self.network}-{self.widen_factor}"
            if self.network == "conv"
            else f"{self.network}-{self.depth}-{self.widen_factor}"
        )

    def build(self, channels: int, classes: int = 10) -> "ConvNet | WideResNet | OrientedResponseNet":
        from bipolar.models import ConvNet, OrientedResponseNet, WideResNet

        if self.depth > DEEPEST:
            raise ValueError(f"depth: expected at most {DEEPEST}, got {self.depth}")
        kinds = {"wrn": WideResNet, "orn": OrientedResponseNet, "conv": ConvNet}
        if self.network not in kinds:
            raise ValueError(f"network: expected one of {', '.join(map(repr, kinds))}, got {self.network!r}")
        for name in sorted(options_of_others(self.network)):
            if getattr(self, name) != getattr(ImageModel, name):
                raise ValueError(f"{name}: the network {self.network!r} has no such option")
        if not 0 < self.head < LARGEST:
            raise ValueError(f"head: expected a positive number, got {self.head}")
        options = {name: getattr(self, name) for name in (*OF_ALL_NETWORKS, *OPTIONS[self.network])}
        model: ConvNet | WideResNet | OrientedResponseNet = kinds[self.network](
            **options, num_classes=classes, in_channels=channels
        )
        return model


@dataclass(frozen=True)
class ImageConfig(RunConfig):
    """Train a residual network on images."""

    task = "images"
    data_names, data_kind = IMAGES, "directory"
    named = ("data", "seed", "network", "depth", "widen_factor", "activation")

    data: str = "cifar10"
    """``cifar10``, ``digits``, which come with scikit-learn, or the path of a directory with a folder for each class,
    or with the folders train and test, each with a folder for each class."""
    model: ImageModel = field(default_factory=ImageModel)
    """The model."""
    lr: FloatFlag = None
    """The learning rate, once it has been eased in. Default: 0.08, or 0.05 by the fast recipe."""
    search: bool = False
    """The paper's search: whenever training diverges, start again with half the learning rate."""
    ease_in: IntFlag = None
    """Steps over which the learning rate is eased in. Default: 2,000, or a tenth of a shorter run."""
    momentum: float = 0.9
    """Nesterov momentum."""
    weight_decay: float = 5e-4
    """Weight decay."""
    pin: bool = True
    """By the fast recipe, in a network without norm: keep each filter at the norm that LSUV gave it."""
    gain: FloatFlag = None
    """Learn a gain for each pinned filter, at so many times the learning rate. Default: no gains."""
    label_smoothing: FloatFlag = None
    """The share of a label that goes to all classes. Default: 0, or 0.1 by the fast recipe."""
    classes_per_batch: IntFlag = None
    """Fill each batch with images of so many classes: no fair sample, which batch norm needs. Default: of all."""
    train_images: IntFlag = None
    """Train on so many images only, the first ones. Default: all."""
    test_images: IntFlag = None
    """Test on so many images only, the first ones. Default: all."""
    views: Views = "one"
    """Test on several views of each image besides: with its mirror image, or also shifted by a pixel. The error is
    reported apart."""
    image_size: IntFlag = None
    """Bring images of one's own to so many pixels a side; the middle is kept. Default: the size that all have."""
    mirror: bool = True
    """Mirror half of the images at random; never the digits."""
    shift: IntFlag = None
    """Shift each image at random, by so many pixels at most. Default: an eighth of its side, 4 for CIFAR-10."""

    @property
    def name(self) -> str:
        m, images = self.model, self.data if self.data in IMAGES else Path(self.data).name
        return f"{images}-{m.size}-{m.activation}-{self.seed}"

    @property
    def peak(self) -> float:
        """The learning rate, once it has been eased in."""
        return self.lr if self.lr is not None else PEAK_OF_FAST if self.update.fast else PEAK

    @property
    def smoothing(self) -> float:
        given, default = self.label_smoothing, SMOOTHING_OF_FAST if self.update.fast else 0.0
        return default if given is None else given

    def check(self) -> None:
        super().check()
        if self.update.optimizer == "path_sgd":
            raise UsageError("--optimizer path_sgd: for recurrent networks of ReLUs; images take sgd, adam or muon")
        if self.search and self.update.fast:
            raise UsageError("--search: a part of the paper's recipe; leave it out, or --recipe fast")
        if self.ease_in is not None and self.update.fast:
            raise UsageError(f"--ease-in {self.ease_in}: a part of the paper's recipe; the fast one has --warm-up")
        if not 0 <= self.smoothing < 1:
            raise UsageError(f"--label-smoothing {self.smoothing}: expected a share, 0 or more and below 1")
        for name in ("train_images", "test_images", "ease_in", "classes_per_batch"):
            self.at_least(name, 0 if name == "ease_in" else 1)
        self.at_least("image_size", 8)
        self.at_least("shift", 0)
        self.positive("lr")
        self.positive("gain")
        if self.gain is not None and not (self.update.fast and self.pin and self.model.norm is None):
            raise UsageError(f"--gain {self.gain}: for filters that are pinned, by --recipe fast and without a norm")
        for name, end in (("momentum", 1.0), ("weight_decay", LARGEST)):
            if not 0 <= getattr(self, name) < end:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected 0 or more, below {end:g}")
        self.check_model(lambda: self.model.build(3))

    def rate_at(self, step: int, total: int) -> float:
        """The learning rate of a step of a run of ``total`` steps."""
        ease_in = min(EASE_IN, math.ceil(EASE_IN_SHARE * total)) if self.ease_in is None else self.ease_in
        eased = min(1.0, (step + 1) / ease_in) if ease_in else 1.0
        drops = sum(step >= drop * total for drop in DROPS)
        return self.peak * eased / math.pow(DIVISOR, drops)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"lr": self.peak, "label_smoothing": self.smoothing}
