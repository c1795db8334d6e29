"""A residual network on images, as a task of the loop."""

import hashlib
import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bipolar._init.lsuv import lsuv_
from bipolar._init.whitened import whitened_
from bipolar.lab.data.images import ImageSet, load_images
from bipolar.lab.data.order import shuffled
from bipolar.lab.data.pictures import Pictures
from bipolar.lab.data.places import IMAGES
from bipolar.lab.errors import UsageError
from bipolar.lab.training.average import Average
from bipolar.lab.training.images.config import DROPS, ImageConfig, Views
from bipolar.lab.training.images.views import over_views
from bipolar.lab.training.processes import share_of_batch, without_fabric
from bipolar.lab.training.runs import stored
from bipolar.lab.training.task import Task
from bipolar.lab.training.update import Schedule
from bipolar.models import ConvNet, OrientedResponseNet, WideResNet
from bipolar.optim import pin

if TYPE_CHECKING:
    from lightning_fabric import Fabric

TEST_BATCH = 500


class ImageTask(Task):
    """A network on batches of images, drawn anew for each epoch, shifted and mirrored.

    The random numbers of a step depend on the seed, the step and the process alone, so that a run that was stopped
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
        model = c.model.build(self.data.channels, len(self.data.classes)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.initialise:
            self._start(model)
        kind = (c.update.optimizer or "muon") if c.update.fast else "sgd"
        optimizer = c.update.make(
            kind,
            model,
            c.peak,
            momentum=c.momentum,
            weight_decay=c.weight_decay,
            precision=c.machine.precision,
        )
        if c.update.fast and c.pin and c.model.norm is None and self.initialise:
            pin(optimizer, model, gain=c.gain)
        self.model, self.optimizer = fabric.setup(model, optimizer)
        if c.update.fast:
            self.schedule = Schedule(c.update, fabric, self.model, self.optimizer, c.update.clip)
        if c.update.average is not None:
            self.average, self.weights = Average(self.model, c.update.average), "averaged"

    def _start(self, model: nn.Module) -> None:
        """Initialises a network by a batch of the training images: LSUV, if it has no norm, and what was asked for."""
        m, generator = self.config.model, torch.Generator().manual_seed(self.config.seed)
        drawn = torch.randperm(len(self.data.train), generator=generator)[: self.config.batch_size]
        batch = self.data.normalised(self.data.train.images[drawn])
        if m.whiten:
            whitened_(cast(nn.Conv2d, model.stem), batch)
        if m.norm is None:
            exclude = "stem" if m.whiten else None
            lsuv_(model, batch, target=m.lsuv, at=m.at, centre=m.centre, exclude=exclude, generator=generator)
        with torch.no_grad():
            cast(nn.Linear, model.head).weight.mul_(m.head)

    @property
    def about(self) -> dict[str, Any]:
        """The facts about the images that ``config.json`` keeps, for whoever uses the model."""
        facts: dict[str, Any] = {
            "classes": list(self.data.classes),
            "mean": self.data.mean.tolist(),
            "std": self.data.std.tolist(),
        }
        return facts if self.config.data in IMAGES else facts | {"images": self.data.digest()}

    @property
    def steps_per_epoch(self) -> int:
        return len(self.data.train) // self.config.batch_size

    @property
    def uniform(self) -> float:
        return math.log(len(self.data.classes))

    def start_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        c, generator = self.config, self._generator(epoch, "order")
        self.order = shuffled(self.data.train.labels, generator, c.batch_size, c.classes_per_batch)
        self.wrong.zero_()

    def _seed(self, number: int, purpose: str) -> int:
        # not hash(): neighbouring numbers need seeds far apart, and the same ones in every Python
        text = f"{self.config.seed} {purpose} {number}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")

    def _generator(self, number: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        return torch.Generator(device).manual_seed(self._seed(number, purpose))

    def forget(self) -> None:
        """A batch of images leaves nothing behind."""

    def loss(self, index: int) -> tuple[Tensor, Tensor]:
        c = self.config
        step = self.epoch * self.steps_per_epoch + index
        self.last = None
        if self.schedule is None:
            for group in self.optimizer.param_groups:
                group["lr"] = c.rate_at(step, c.length.total(self.steps_per_epoch))
        chosen = self.order[index * c.batch_size : (index + 1) * c.batch_size]
        generator = self._generator(step, "images", "cuda" if self.fabric.device.type == "cuda" else "cpu")
        images = self.data.varied(self.train, chosen, generator, self.part)
        labels = self.train.labels[chosen[self.part].to(self.fabric.device)]
        torch.manual_seed(self._seed(step, f"dropout {self.fabric.global_rank}"))
        logits = self.model(self.data.normalised(images)).float()
        self.wrong += (logits.detach().argmax(1) != labels).sum()
        loss = cross_entropy(logits, labels, label_smoothing=c.smoothing)
        return loss, loss.detach()

    @torch.no_grad()
    def evaluate(self, pictures: Pictures, views: Views = "one") -> tuple[float, float]:
        """Error in per cent, and loss, over views of each image; each process takes its share of the batches."""
        rank, world = self.fabric.global_rank, self.fabric.world_size
        # without the wrapper: its calls wait for all processes, of which some have fewer batches
        network = without_fabric(self.model)
        if world > 1:
            for buffer in network.buffers():
                buffer.copy_(self.fabric.broadcast(buffer))
        total = torch.zeros(2, device=self.fabric.device)
        for start in range(rank * TEST_BATCH, len(pictures), world * TEST_BATCH):
            images, labels = (part[start : start + TEST_BATCH] for part in (pictures.images, pictures.labels))
            with self.fabric.autocast():
                logits = over_views(network, self.data.normalised(images), views).float()
            total[0] += (logits.argmax(1) != labels).sum()
            total[1] += cross_entropy(logits, labels, reduction="sum")
        total = cast(Tensor, self.fabric.all_reduce(total, reduce_op="sum"))
        return 100 * float(total[0]) / len(pictures), float(total[1]) / len(pictures)

    def after_epoch(self, epoch: int, final: bool) -> dict[str, Any] | None:
        self.last = self._tested()
        wrong = float(self._all_wrong())
        batches = self.steps_per_epoch
        if final:  # the run may end within an epoch
            batches = (self.config.length.total(batches) - 1) % batches + 1
        images = batches * self.config.batch_size
        rate = float(self.optimizer.param_groups[0]["lr"])
        return {"train_error": 100 * wrong / images, **self.last, "lr": rate}

    def _tested(self) -> dict[str, Any]:
        """The error and the loss on the test set, with an average of the weights its own, and beside it theirs."""
        with self.counting():
            error, loss = self.evaluate(self.tested)
        raw = {} if self.average is None else {"raw_test_error": self.evaluate(self.tested)[0]}
        return {"test_error": error, "test_loss": loss} | raw

    def _all_wrong(self) -> Tensor:
        return cast(Tensor, self.fabric.all_reduce(self.wrong.clone(), reduce_op="sum"))  # all_reduce works in place

    def schedule_from(self, step: int, total: int) -> str:
        if self.schedule is not None:
            return self.schedule.after(step, total)
        before, after = float(self.optimizer.param_groups[0]["lr"]), self.config.rate_at(step, total)
        drops = [f"{drop * total:,.0f}" for drop in DROPS if drop * total > step]
        later = f"; it drops after step {' and '.join(drops)}" if drops else ""
        return (
            f"The learning rate is from here on that of a run of {total:,} steps: {after:g}, after {before:g} until "
            f"here{later}"
        )

    def is_best(self) -> bool:
        return False  # the paper counts the error of the last epoch

    def test(self) -> dict[str, Any]:
        if self.last is None:
            self.last = self._tested()
        if self.config.views == "one":
            return self.last
        with self.counting():
            return self.last | {"views_test_error": self.evaluate(self.tested, self.config.views)[0]}

    @property
    def outcome(self) -> dict[str, Any]:
        return {"lr": self.config.peak}  # which a search may have found

    def portable(self) -> ConvNet | WideResNet | OrientedResponseNet:
        return cast(ConvNet | WideResNet | OrientedResponseNet, without_fabric(self.model))

    def rate(self, seconds: float) -> str:
        return f"{self.config.batch_size / max(seconds, 1e-9):,.0f} images/s"

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "wrong": self._all_wrong().cpu()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start_epoch(state["epoch"])
        if self.fabric.is_global_zero:  # the others count from 0: only the sum matters
            self.wrong += state["wrong"].to(self.wrong.device)


def image_task(config: ImageConfig, initialise: bool = True) -> ImageTask:
    """The task of a configuration, with its images; ``initialise=False`` leaves LSUV out."""
    data = load_images(
        config.data,
        config.data_dir,
        config.train_images,
        image_size=config.image_size,
        mirror=config.mirror,
        shift=config.shift,
    )
    task, run = ImageTask(config, data, initialise), config.directory
    if config.data not in IMAGES and (run / "config.json").exists():
        before = stored(run).get("images")  # the configuration of a search has none
        if before is not None and before != data.digest():
            raise UsageError(
                f"--data {config.data}: these are not the images that {run} began with; --data-dir DIRECTORY says in "
                "which directory they are"
            )
    return task
