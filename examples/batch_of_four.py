"""A residual network with batch norm, trained without it on batches of four images; then folded and exported.

The example removes batch norm from an ordinary network, gives it bipolar activations, initialises it by LSUV and trains
it beside the original on the handwritten digits of scikit-learn, both with a batch size of 4: the original by SGD, the
one without norms by the optimiser that bipolar.optim recommends. The result is an ordinary network with ReLUs and no
batch statistics. The example shows the steps, not a gain: four images of 8x8 pixels are 256 values for a mean, enough
for batch norm, and on 360 test images the two errors are apart by no more than chance. For a gain, see
unfair_batches.py.

    pip install 'bipolar[lab,onnx]'
    python examples/batch_of_four.py
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import bipolar

BATCH, TEST = 4, 360


class Block(nn.Module):
    """A residual block with batch norm and ReLUs that work in place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.relu1, self.relu2 = nn.ReLU(inplace=True), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(self.relu1(self.norm1(x)))
        out: Tensor = x + self.conv2(self.relu2(self.norm2(y)))
        return out


def resnet(channels: int = 16, blocks: int = 3) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1, bias=False),
        *(Block(channels) for _ in range(blocks)),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 10),
    )


def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)
    return (images - images.mean()) / images.std(), torch.tensor(data.target)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, steps: int) -> None:
    """Trains at rates that rise over the first tenth of the steps and fall to zero over the rest."""
    rise = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / rise, (steps - s) / (steps - rise)))
    generator = torch.Generator().manual_seed(0)
    model.train()
    for _ in range(steps):
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def error(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of wrong answers in per cent."""
    return 100 * float((model.eval()(images).argmax(1) != labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500, help="training steps of each network (default: 1500)")
    parser.add_argument("--out", type=Path, default=Path("digits.onnx"), help="the ONNX file (default: digits.onnx)")
    options = parser.parse_args()
    torch.manual_seed(0)
    images, labels = digits()
    test, test_labels, images, labels = images[:TEST], labels[:TEST], images[TEST:], labels[TEST:]

    original = resnet()
    model = bipolar.convert(original, remove_norm="batch", example=images[:64])
    print(model.conversion_report, end="\n\n")
    report = bipolar.lsuv_(model, images[:64], target="second_moment")

    train(original, torch.optim.SGD(original.parameters(), lr=0.03, momentum=0.9), images, labels, options.steps)
    recommended, _ = bipolar.optim.recommended(model, lr=0.01, adam_lr=1e-3, lsuv_report=report)
    train(model, recommended, images, labels, options.steps)
    print(f"test error after {options.steps} steps with batches of {BATCH}:")
    print(f"  batch norm, ReLU         {error(original, test, test_labels):5.1f} %")
    print(f"  no norm, bipolar ReLU    {error(model, test, test_labels):5.1f} %\n")

    plain = bipolar.fold(model, images[:2], strict=True)
    print(f"folded: {plain.get_submodule('5')}, outputs equal to the last bit: {torch.equal(plain(test), model(test))}")
    print(f"exported to {bipolar.export_onnx(model, images[:2], options.out)}")


if __name__ == "__main__":
    main()
