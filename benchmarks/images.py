"""Training steps of networks with batch norm, without norm and compiled, and the cost of augmentation.

All methods train on the same batch of random images of CIFAR-10's shape, channels-last, by SGD with momentum, or by
Muon as in the item normfree. They take turns in one run, and the best round of each counts. Memory is the growth of the
peak resident memory in three training steps, in a process of its own; a compiled model's includes the compiler's.
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from benchmarks.common import best_of, in_fresh_process, machine, markdown_table, peak, record, timed
from bipolar.lab.data.images import CIFAR10_CLASSES, ImageSet
from bipolar.lab.data.pictures import Pictures
from bipolar.models import ConvNet, WideResNet
from bipolar.optim import Muon, groups, pin

BATCH, AIM = 128, 0.03
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "WideResNet-28-2": lambda **options: WideResNet(28, 2, **options),
    "WideResNet-16-2": lambda **options: WideResNet(16, 2, **options),
    "WideResNet-10-1": lambda **options: WideResNet(10, 1, dropout=0.0, **options),
    "ConvNet, k = 2": lambda **options: ConvNet(2, **options),
}


class Method(NamedTuple):
    """A row: a network, its activation and norm, and the way it is trained."""

    network: str
    activation: str
    norm: str | None = None
    muon: bool = False
    compiled: bool = False

    def __str__(self) -> str:
        name = bipolar.get_activation(self.activation).__class__.__name__
        words = [name, "no norm" if self.norm is None else "batch norm"]
        words += ["compiled"] if self.compiled else []
        return ", ".join([*words, *(["Muon"] if self.muon else []), *(["pinned"] if self.pinned else [])])

    @property
    def pinned(self) -> bool:
        return self.muon and self.norm is None


METHODS = [
    Method("WideResNet-28-2", "relu", "batch"),
    Method("WideResNet-28-2", "brelu"),
    Method("WideResNet-28-2", "brelu", compiled=True),
    Method("WideResNet-28-2", "relu"),
    Method("WideResNet-10-1", "elu", "batch", muon=True),
    Method("WideResNet-10-1", "elu", muon=True),
    Method("ConvNet, k = 2", "elu", "batch", muon=True),
    Method("ConvNet, k = 2", "elu", muon=True),
]


def images() -> ImageSet:
    """Random images of the shape of CIFAR-10, a fifth as many."""
    generator = torch.Generator().manual_seed(0)
    pictures = Pictures(
        torch.randint(256, (10_000, 32, 32, 3), dtype=torch.uint8, generator=generator),
        torch.randint(10, (10_000,), generator=generator),
    )
    mean, std = torch.full((3,), 120.0), torch.full((3,), 60.0)
    return ImageSet("random", pictures, pictures, mean, std, CIFAR10_CLASSES, shift=4, mirror=True)


def batch_of(data: ImageSet) -> Callable[[], tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)

    def draw() -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(data.train), (BATCH,), generator=generator)
        return data.normalised(data.varied(data.train, chosen, generator)), data.train.labels[chosen]

    return draw


def training_step(method: Method, batch: Callable[[], tuple[Tensor, Tensor]]) -> Callable[[], None]:
    torch.manual_seed(0)
    network: Any = NETWORKS[method.network](activation=method.activation, norm=method.norm)
    model: nn.Module = network.to(memory_format=torch.channels_last)
    x, _ = batch()
    if method.norm is None:
        bipolar.lsuv_(model, x)
    optimizer: torch.optim.Optimizer
    if method.muon:
        optimizer = Muon(groups(model), lr=1e-3)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, nesterov=True)
    if method.pinned:
        pin(optimizer, model)
    run: Any = torch.compile(model) if method.compiled else model

    def step() -> None:
        x, labels = batch()
        tF.cross_entropy(run(x), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _peak_memory(method: Method) -> float:
    data = images()
    step = training_step(method, batch_of(data))
    before = peak()
    for _ in range(3):
        step()
    return peak() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    arguments = parser.parse_args()
    data = images()
    draw = batch_of(data)
    fixed = draw()
    steps = [training_step(method, lambda: fixed) for method in METHODS]
    times = [seconds for (seconds,) in best_of([timed(step) for step in steps], 5, 0)]
    memory = [in_fresh_process(_peak_memory, method) for method in METHODS]
    rows = [
        [method.network, str(method), f"{1000 * seconds:.0f}", f"{BATCH / seconds:.0f}", f"{mib:.0f}"]
        for method, seconds, mib in zip(METHODS, times, memory, strict=True)
    ]
    small = Method("WideResNet-16-2", "brelu")
    (seconds,), (augmenting,) = best_of([timed(training_step(small, lambda: fixed)), timed(draw, 20)], 5, 10)
    share = augmenting / seconds
    rows.append([small.network, str(small), f"{1000 * seconds:.0f}", f"{BATCH / seconds:.0f}", ""])
    rows.append(["", "shift, mirror, normalise", f"{1000 * augmenting:.2f}", f"{BATCH / augmenting:,.0f}", ""])
    table = markdown_table(["network", "method", "ms a step", "images/s", "MiB"], rows)
    verdict = f"Augmentation costs {100 * share:.1f} % of a step of WideResNet-16-2 (aim {100 * AIM:.0f} %: "
    text = f"{machine()}; float32, batch {BATCH}.\n\n{table}\n\n{verdict}{'met' if share <= AIM else 'missed'})."
    print(text)
    if arguments.record:
        record("images", text)


if __name__ == "__main__":
    main()
