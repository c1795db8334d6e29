"""Batches of a single class each: batch norm fails on them, a network without norms learns.

Data often arrive class by class, speaker by speaker, day by day. Batch norm replaces the mean and the variance of a
feature by those of the batch. If all images of a batch are of one class, these cancel what tells the class, or give it
away; with the averages over all batches, at test time, the network is lost. A network without norms sees every image
alone. Here it is the same network, converted, initialised by LSUV and trained by the optimiser that ``bipolar.optim``
recommends. ``--classes 2`` and ``--classes 10`` show how the gap closes as batches become fair.

    pip install 'bipolar[lab]'
    python examples/unfair_batches.py
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import bipolar

BATCH, TEST, RATE = 16, 360, 0.02


def network(channels: int = 24) -> nn.Module:
    """Four convolutions with batch norm and ELU."""

    def layer(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ELU()]

    return nn.Sequential(
        *layer(1, channels),
        *layer(channels, channels),
        nn.AvgPool2d(2),
        *layer(channels, 2 * channels),
        *layer(2 * channels, 2 * channels),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * channels, 10),
    )


def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)
    return (images - images.mean()) / images.std(), torch.tensor(data.target)


def unfair_batch(labels: Tensor, classes: int, generator: torch.Generator) -> Tensor:
    """The indices of a batch of few classes."""
    chosen = torch.randperm(10, generator=generator)[:classes]
    among = torch.isin(labels, chosen).nonzero().squeeze(1)
    return among[torch.randint(len(among), (BATCH,), generator=generator)]


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, steps: int, classes: int
) -> None:
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    generator = torch.Generator().manual_seed(0)
    model.train()
    for _ in range(steps):
        chosen = unfair_batch(labels, classes, generator)
        optimizer.zero_grad()
        F.cross_entropy(model(images[chosen]), labels[chosen], label_smoothing=0.1).backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def error(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of wrong answers in per cent."""
    return 100 * float((model.eval()(images).argmax(1) != labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=1, help="classes in each batch (default: 1)")
    parser.add_argument("--steps", type=int, default=300, help="training steps of each network (default: 300)")
    parser.add_argument("--seeds", type=int, default=3, help="how often to train each (default: 3)")
    options = parser.parse_args()
    images, labels = digits()
    test, test_labels, images, labels = images[:TEST], labels[:TEST], images[TEST:], labels[TEST:]

    print(f"test error after {options.steps} steps with batches of {BATCH} images, classes in each: {options.classes}")
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        by_sgd, by_muon = network(), network()
        by_muon.load_state_dict(by_sgd.state_dict())
        without = bipolar.convert(by_sgd, remove_norm="batch", example=images[:64])
        bipolar.lsuv_(without, images[:64], target="second_moment")
        contest: dict[str, tuple[nn.Module, torch.optim.Optimizer]] = {
            "no norm": (without, bipolar.optim.recommended(without, lr=RATE)[0]),
            "batch norm, SGD": (by_sgd, torch.optim.SGD(by_sgd.parameters(), lr=0.05, momentum=0.9)),
            "batch norm, Muon": (by_muon, bipolar.optim.Muon(bipolar.optim.groups(by_muon), lr=RATE, adam_lr=4e-3)),
        }
        errors = {}
        for name, (model, optimizer) in contest.items():
            train(model, optimizer, images, labels, options.steps, options.classes)
            errors[name] = error(model, test, test_labels)
        print(f"  seed {seed}: " + ", ".join(f"{name} {value:.1f} %" for name, value in errors.items()), flush=True)


if __name__ == "__main__":
    main()
