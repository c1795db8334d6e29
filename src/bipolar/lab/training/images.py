"""Training a residual network on images, by the paper's recipe."""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from bipolar._activations.moments import Statistic
from bipolar._activations.patterns import Pattern
from bipolar._init.lsuv import lsuv_
from bipolar._tools.files import write_json
from bipolar.lab.data import data_directory
from bipolar.lab.data.images import CLASSES, ImageSet, Pictures, load_images
from bipolar.lab.errors import UsageError
from bipolar.lab.provenance import provenance
from bipolar.lab.training.checkpoints import best_of
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.processes import is_chief, share_of_batch, without_fabric
from bipolar.lab.training.runs import LARGEST, RunConfig, load_config, perform, prepared
from bipolar.lab.training.task import Task
from bipolar.models._oriented_response_net import Encoding, OrientedResponseNet
from bipolar.models._wide_resnet import Norm, Shortcut, WideResNet

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: The paper's easing in: this many steps, or a tenth of a run that is too short for it.
EASE_IN, EASE_IN_SHARE = 2000, 0.1
#: Where the rate is divided, by how far a run has come, and by what: epochs 120 and 160 of 200.
DROPS, DIVISOR = (0.6, 0.8), 5
#: How often a search halves the rate before it gives up.
HALVINGS = 12
TEST_BATCH = 500


@dataclass(frozen=True)
class ImageModel:
    """The model."""

    network: Literal["wrn", "orn"] = "wrn"
    """A wide residual network, or an oriented response network."""
    depth: int = 28
    """Layers: 6n + 4."""
    widen_factor: int = 10
    """How many times 16, 32 and 64 feature maps the stages have."""
    activation: str = "brelu"
    """The activation function, by name."""
    dropout: float = 0.3
    """Dropout within the blocks."""
    norm: Norm | None = None
    """Batch norm, or nothing as in the paper."""
    shortcut: Shortcut = "clean"
    """What a shortcut carries: see the item ``shortcut``."""
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

    def build(self, channels: int) -> WideResNet | OrientedResponseNet:
        options: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("depth", "widen_factor", "activation", "dropout", "norm", "shortcut", "pattern")
        }
        options |= {"num_classes": CLASSES, "in_channels": channels}
        if self.network not in ("wrn", "orn"):
            raise ValueError(f"network: expected 'wrn' or 'orn', got {self.network!r}")
        if self.network == "wrn":
            return WideResNet(**options)
        return OrientedResponseNet(
            **options, orientations=self.orientations, reduction=self.reduction, encoding=self.encoding
        )


@dataclass(frozen=True)
class ImageConfig(RunConfig):
    """Train a residual network on images."""

    task = "images"

    data: str = "cifar10"
    """``cifar10``, or ``digits``, which come with scikit-learn."""
    model: ImageModel = field(default_factory=ImageModel)
    """The model."""
    lr: float = 0.08
    """The learning rate, once it has been eased in."""
    search: bool = False
    """The paper's search: whenever training diverges, start again with half the learning rate."""
    ease_in: int | None = None
    """Steps over which the learning rate is eased in. Default: 2,000, or a tenth of a shorter run."""
    momentum: float = 0.9
    """Nesterov momentum."""
    weight_decay: float = 5e-4
    """Weight decay."""
    train_images: int | None = None
    """Train on so many images only, the first ones."""
    test_images: int | None = None
    """Test on so many images only, the first ones."""

    def filled(self) -> "ImageConfig":
        m = self.model
        name = f"{self.data}-{m.network}-{m.depth}-{m.widen_factor}-{m.activation}-{self.seed}"
        return dataclasses.replace(self, out=self.out or Path("runs") / name)

    def check(self) -> None:
        super().check()
        for name in ("train_images", "test_images", "ease_in"):
            self.at_least(name, 0 if name == "ease_in" else 1)
        self.positive("lr")
        for name, end in (("momentum", 1.0), ("weight_decay", LARGEST)):
            if not 0 <= getattr(self, name) < end:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected 0 or more, below {end:g}")
        self.check_model(lambda: self.model.build(3))

    def rate_at(self, step: int, total: int) -> float:
        """The learning rate of a step of a run of ``total`` steps."""
        ease_in = min(EASE_IN, math.ceil(EASE_IN_SHARE * total)) if self.ease_in is None else self.ease_in
        eased = min(1.0, (step + 1) / ease_in) if ease_in else 1.0
        drops = sum(step >= drop * total for drop in DROPS)
        return self.lr * eased / math.pow(DIVISOR, drops)


class ImageTask(Task):
    """A network on batches of images, drawn anew for each epoch, shifted and mirrored.

    All that is random in a step depends on the seed, the step and the process alone, so that a run that was stopped
    goes on as if nothing had happened, on any device.
    """

    unit = "loss"

    def __init__(self, config: ImageConfig, data: ImageSet, initialise: bool = True) -> None:
        if len(data.train) < config.batch_size:
            raise UsageError(f"--batch-size {config.batch_size}: there are only {len(data.train)} images to train on")
        if config.test_images is not None and config.test_images > len(data.test):
            raise UsageError(f"--test-images {config.test_images}: expected 1 to {len(data.test)}")
        self.config, self.data, self.initialise = config, data, initialise
        self.epoch = 0
        self.order = torch.empty(0, dtype=torch.int64)
        self.last: dict[str, Any] | None = None

    def setup(self, fabric: "Fabric") -> None:
        c = self.config
        self.part = share_of_batch(c.batch_size, fabric)
        self.fabric = fabric
        self.train, self.tested = (
            self.data.train.to(fabric.device),
            self.data.test.first(c.test_images).to(fabric.device),
        )
        self.wrong = torch.zeros((), device=fabric.device)
        model = c.model.build(self.data.channels).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if c.model.norm is None and self.initialise:
            generator = torch.Generator().manual_seed(c.seed)
            drawn = torch.randperm(len(self.data.train), generator=generator)[: c.batch_size]
            batch = self.data.normalised(self.data.train.images[drawn])
            lsuv_(model, batch, target=c.model.lsuv, at=c.model.at, generator=generator)
        optimizer = torch.optim.SGD(
            model.parameters(), lr=c.lr, momentum=c.momentum, weight_decay=c.weight_decay, nesterov=c.momentum > 0
        )
        self.model, self.optimizer = fabric.setup(model, optimizer)

    @property
    def steps_per_epoch(self) -> int:
        return len(self.data.train) // self.config.batch_size

    @property
    def uniform(self) -> float:
        return math.log(CLASSES)

    def start_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.order = torch.randperm(len(self.data.train), generator=self._generator(epoch, "order"))
        self.wrong.zero_()

    def _seed(self, number: int, purpose: str) -> int:
        # far apart for neighbouring numbers, and the same in every Python: hash() is neither
        text = f"{self.config.seed} {purpose} {number}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")

    def _generator(self, number: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        return torch.Generator(device).manual_seed(self._seed(number, purpose))

    def loss(self, index: int) -> tuple[Tensor, Tensor]:
        c = self.config
        step = self.epoch * self.steps_per_epoch + index
        self.last = None
        for group in self.optimizer.param_groups:
            group["lr"] = c.rate_at(step, c.length.total(self.steps_per_epoch))
        chosen = self.order[index * c.batch_size : (index + 1) * c.batch_size]
        generator = self._generator(step, "images", "cuda" if self.fabric.device.type == "cuda" else "cpu")
        images = self.data.varied(self.train, chosen, generator, self.part)
        labels = self.train.labels[chosen[self.part].to(self.fabric.device)]
        torch.manual_seed(self._seed(step, f"dropout {self.fabric.global_rank}"))
        logits = self.model(self.data.normalised(images)).float()
        self.wrong += (logits.detach().argmax(1) != labels).sum()
        loss = cross_entropy(logits, labels)
        return loss, loss.detach()

    @torch.no_grad()
    def evaluate(self, pictures: Pictures) -> tuple[float, float]:
        """Error in per cent, and loss; each process takes its share of the batches."""
        rank, world = self.fabric.global_rank, self.fabric.world_size
        # not by the wrapper of several processes, which would wait in each call for those that have fewer batches
        network = without_fabric(self.model)
        if world > 1:
            for buffer in network.buffers():
                buffer.copy_(self.fabric.broadcast(buffer))
        total = torch.zeros(2, device=self.fabric.device)
        for start in range(rank * TEST_BATCH, len(pictures), world * TEST_BATCH):
            images, labels = (part[start : start + TEST_BATCH] for part in (pictures.images, pictures.labels))
            with self.fabric.autocast():
                logits = network(self.data.normalised(images)).float()
            total[0] += (logits.argmax(1) != labels).sum()
            total[1] += cross_entropy(logits, labels, reduction="sum")
        total = cast(Tensor, self.fabric.all_reduce(total, reduce_op="sum"))
        return 100 * float(total[0]) / len(pictures), float(total[1]) / len(pictures)

    def after_epoch(self, epoch: int, final: bool) -> dict[str, Any] | None:
        error, loss = self.evaluate(self.tested)
        wrong = float(self._all_wrong())
        batches = self.steps_per_epoch
        if final:  # the run may end within an epoch
            batches = (self.config.length.total(batches) - 1) % batches + 1
        images = batches * self.config.batch_size
        self.last = {"test_error": error, "test_loss": loss}
        rate = float(self.optimizer.param_groups[0]["lr"])
        return {"train_error": 100 * wrong / images, "test_error": error, "test_loss": loss, "lr": rate}

    def _all_wrong(self) -> Tensor:
        return cast(Tensor, self.fabric.all_reduce(self.wrong.clone(), reduce_op="sum"))  # which works in place

    def is_best(self) -> bool:
        return False  # the error that counts is that of the last epoch

    def test(self) -> dict[str, Any]:
        if self.last is None:
            error, loss = self.evaluate(self.tested)
            self.last = {"test_error": error, "test_loss": loss}
        return {**self.last, "lr": self.config.lr}

    def rate(self, seconds: float) -> str:
        return f"{self.config.batch_size / max(seconds, 1e-9):,.0f} images/s"

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "wrong": self._all_wrong().cpu()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start_epoch(state["epoch"])
        if self.fabric.is_global_zero:  # the others count on from nothing: what matters is the sum
            self.wrong += state["wrong"].to(self.wrong.device)


def train_images(config: ImageConfig, *, show: bool = True) -> dict[str, Any]:
    """Trains by a configuration, from the beginning or from the last checkpoint; returns ``result.json``."""
    config = prepared(config)
    if config.search:
        return _search(config, show)
    return perform(config, image_task(config), show=show)


def image_task(config: ImageConfig, initialise: bool = True) -> ImageTask:
    data = load_images(config.data, data_directory(config.data_dir), config.train_images)
    return ImageTask(config, data, initialise)


def _search(config: ImageConfig, show: bool) -> dict[str, Any]:
    """Starts again with half the rate whenever training diverges. Each attempt is a run of its own in the directory."""
    out = config.out or Path("runs")
    if not (out / "config.json").exists() and is_chief():
        write_json(out / "config.json", {"task": config.task, "config": config.to_json(), **provenance()})
    attempts: list[dict[str, Any]] = []
    result: dict[str, Any] = {}
    for halvings in range(HALVINGS + 1):
        rate = config.lr / 2**halvings
        attempt = dataclasses.replace(config, lr=rate, search=False, out=out / f"lr-{rate:g}")
        path = cast(Path, attempt.out) / "result.json"
        if path.exists():
            result = json.loads(path.read_text(encoding="utf-8"))
        else:
            task = image_task(attempt)
            # a run that is shorter than the patience is judged at its end: one that has learned nothing is none
            patience = min(config.patience, config.length.total(task.steps_per_epoch))
            result = perform(prepared(dataclasses.replace(attempt, patience=patience)), task, show=show)
        if result["status"] == "stopped":
            return result
        attempts.append({"lr": rate, **{k: result[k] for k in ("status", "reason", "step", "seconds") if k in result}})
        if result["status"] == "finished":
            break
    seconds = round(sum(attempt.get("seconds", 0.0) for attempt in attempts), 1)
    result |= {"lr": rate, "run": f"lr-{rate:g}", "attempts": attempts, "seconds": seconds}
    if is_chief():
        write_json(out / "result.json", result)
    return result


def found_in(run: Path) -> Path:
    """The directory of the run that a search has ended with; of any other run its own."""
    path = run / "result.json"
    result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return run / str(result.get("run", ""))


def evaluate_images(run: Path, split: str, data_dir: Path | None = None) -> dict[str, float]:
    """The metrics of a run's last model on a split."""
    if split not in ("train", "test"):
        raise UsageError(f"--split {split}: expected one of train, test")
    run = found_in(run)
    config = load_config(ImageConfig, run, data_dir)
    if config.search:
        raise UsageError(f"{run}: the search has not ended yet; evaluate one of its runs, {run}/lr-...")
    task = image_task(config, initialise=False)
    with torch.random.fork_rng(devices=[]):
        task.setup(Machine(accelerator="auto", precision=config.machine.precision).fabric())
    task.model.load_state_dict(best_of(run)["model"])
    task.model.eval()
    error, loss = task.evaluate(task.train if split == "train" else task.tested)
    return {f"{split}_error": error, f"{split}_loss": loss}
