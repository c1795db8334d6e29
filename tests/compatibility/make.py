"""Files as an earlier version of the library wrote them: ``python -m tests.compatibility.make DIRECTORY``.

The files beside this script were made by commit 60a146e, before the modules moved, ``paper_recipe.json`` later. Tests
load the files and compare outputs.
"""

import dataclasses
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import bipolar
from bipolar._tools.files import write_json
from bipolar.lab.training.journal import read_metrics
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.text import TextConfig, TextModel, train_text


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


def losses(directory: Path) -> list[float]:
    """The training errors of some steps by the paper's recipe, in double precision."""
    text = directory / "fox.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 40)
    model, machine = TextModel(num_layers=4, hidden_size=8), Machine(accelerator="cpu", precision="64-true")
    config = TextConfig(str(text), model, machine=machine, batch_size=2, window=8, lr=5e-3, max_steps=20, log_every=1)
    train_text(dataclasses.replace(config, out=directory / "run"), show=False)
    return [row["train_bpc"] for row in read_metrics(directory / "run") if "train_bpc" in row]


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, (network, x) in networks().items():
        save_file(network.state_dict(), directory / f"{name}.safetensors")
        save_file({"input": x, "output": output_of(network, x)}, directory / f"{name}.example.safetensors")
    for name, (network, x) in models().items():
        network.save_pretrained(directory / name)
        save_file({"input": x, "output": output_of(network, x)}, directory / f"{name}.example.safetensors")
    with tempfile.TemporaryDirectory() as place:
        write_json(directory / "paper_recipe.json", {"train_bpc": losses(Path(place))})


if __name__ == "__main__":
    main()
