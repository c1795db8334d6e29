"""Files as an earlier version of the library wrote them: ``python -m tests.compatibility.make DIRECTORY``.

The files beside this script were made by commit 60a146e, before the modules moved. The script uses public names alone,
so that it runs at any version. Tests load the files and compare outputs.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import bipolar


def networks() -> dict[str, tuple[nn.Module, Tensor]]:
    """Networks whose state dicts are kept, each with an input."""
    torch.manual_seed(1)
    norms = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))
    x = torch.randn(4, 2, 4, 4)
    norms(x)
    return {
        "stacked_rnn": (bipolar.StackedRNN(5, 6, 5, "belu"), torch.randn(7, 3, 5)),
        "activations": (nn.Sequential(nn.Linear(5, 6), bipolar.BPReLU(6), bipolar.BSELU()), torch.randn(3, 5)),
        "converted": (bipolar.convert(norms, remove_norm="batch", example=x), x),
    }


def models() -> dict[str, tuple[nn.Module, Tensor]]:
    """Models that are kept as directories of ``save_pretrained``, each with an input."""
    torch.manual_seed(2)
    images = torch.randn(2, 1, 8, 8)
    return {
        "char_rnn": (bipolar.models.CharRNN("abc", 6, 5, nonlinearity="brelu"), torch.randint(3, (7, 2))),
        "wide_resnet": (bipolar.models.WideResNet(10, 1, num_classes=3, in_channels=1, activation="belu"), images),
        "oriented": (
            bipolar.models.OrientedResponseNet(10, 1, num_classes=3, in_channels=1, orientations=4, reduction=8),
            images,
        ),
    }


def output_of(model: nn.Module, x: Tensor) -> Tensor:
    """The first tensor that a model returns in evaluation mode."""
    with torch.no_grad():
        output = model.eval()(x)
    first: Tensor = output if isinstance(output, Tensor) else output[0]
    return first


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, (network, x) in networks().items():
        save_file(network.state_dict(), directory / f"{name}.safetensors")
        save_file({"input": x, "output": output_of(network, x)}, directory / f"{name}.example.safetensors")
    for name, (network, x) in models().items():
        network.save_pretrained(directory / name)
        save_file({"input": x, "output": output_of(network, x)}, directory / f"{name}.example.safetensors")


if __name__ == "__main__":
    main()
