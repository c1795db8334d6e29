"""``bipolar.symmetry`` and ``bipolar.fold``: time against the number of parameters, for ten models and four families.

A pass in evaluation and one in training are part of both, so that the time of a single pass stands beside them. The
models are of torch, of this library and, with small configurations, of transformers. A family is one model at four
sizes; its exponent is the slope of log(time) over log(parameters): 1 for time that grows as the parameters do, less
where a constant part weighs more.
"""

import argparse
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as tF
import transformers
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import bipolar
from benchmarks.common import best_of, machine, markdown_table, record, timed
from bipolar._tools.calling import call
from bipolar.models import CharRNN, WideResNet

#: The most seconds that `symmetry` may take for a weight-normed layer, and for a network of standardised convolutions.
AIMS = {"a weight-normed layer of 512": 1.0, "standardised ResNet-26": 10.0}
#: The largest exponent that counts as linear growth, with some room for noise.
LINEAR = 1.1


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose filters are standardised before each call."""

    def forward(self, input: Tensor) -> Tensor:
        rows = self.weight.reshape(1, self.out_channels, -1)
        weight = tF.batch_norm(rows, None, None, training=True, momentum=0.0).reshape_as(self.weight)
        output: Tensor = self._conv_forward(input, weight, self.bias)
        return output


class Bottleneck(nn.Module):
    """Three standardised convolutions, each after an activation, around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        width = outputs // 4
        sizes = ((inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1))
        self.convs = nn.ModuleList(StandardisedConv2d(a, b, k, s, k // 2) for a, b, k, s in sizes)
        self.acts = nn.ModuleList(bipolar.BReLU() for _ in sizes)
        self.shortcut = StandardisedConv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for act, conv in zip(self.acts, self.convs, strict=True):
            y = conv(act(y))
        output: Tensor = self.shortcut(x) + y
        return output


def standardised_resnet(width: int = 256) -> nn.Module:
    """ResNet-26, without norm layers, of standardised convolutions."""
    blocks: list[nn.Module] = []
    inputs = width // 4
    for stage in range(4):
        for stride in (1 if stage == 0 else 2, 1):
            blocks.append(Bottleneck(inputs, width << stage, stride))
            inputs = width << stage
    stem = StandardisedConv2d(3, width // 4, 7, 2, 3)
    return nn.Sequential(stem, *blocks, bipolar.BReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def mlp(width: int, layer: Callable[[int, int], nn.Module] = nn.Linear) -> nn.Module:
    layers = [part for _ in range(4) for part in (layer(width, width), bipolar.BReLU())]
    return nn.Sequential(*layers, layer(width, 10))


def weight_normed(inputs: int, outputs: int) -> nn.Module:
    layer: nn.Module = weight_norm(nn.Linear(inputs, outputs))
    return layer


def gpt2(width: int = 512, layers: int = 8) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=8192, n_positions=128, n_embd=width, n_layer=layers, n_head=8, activation_function="relu",
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=8192, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048
    )
    return transformers.BertModel(config)


def vit() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        intermediate_size=1536,
        image_size=64,
        patch_size=8,
    )
    return transformers.ViTForImageClassification(config)


def images() -> Tensor:
    return torch.randn(2, 3, 64, 64)


def tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(8192, (2, 64))}


def vectors(width: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(8, width)


Case = tuple[Callable[[], nn.Module], Callable[[], Any]]
MODELS: dict[str, Case] = {
    "MLP, 5 layers of 256": (lambda: mlp(256), vectors(256)),
    "MLP, 5 layers of 2048": (lambda: mlp(2048), vectors(2048)),
    "a weight-normed layer of 512": (
        lambda: nn.Sequential(weight_normed(512, 512), bipolar.BReLU(), nn.Linear(512, 2)),
        vectors(512),
    ),
    "weight-normed MLP, 5 layers of 1024": (lambda: mlp(1024, weight_normed), vectors(1024)),
    "standardised ResNet-26": (standardised_resnet, images),
    "WideResNet-28-4": (lambda: WideResNet(28, 4), lambda: torch.randn(2, 3, 32, 32)),
    "CharRNN 36 x 256": (lambda: CharRNN(64, 256, 36), lambda: torch.randint(64, (8, 2))),
    "GPT-2, 8 layers of 512": (gpt2, tokens),
    "BERT, 6 layers of 512": (bert, tokens),
    "ViT, 12 layers of 384": (vit, lambda: {"pixel_values": images()}),
}
FAMILIES: dict[str, Callable[[int], Case]] = {
    "MLP, 5 layers": lambda scale: (lambda: mlp(256 * scale), vectors(256 * scale)),
    "weight-normed MLP, 5 layers": lambda scale: (lambda: mlp(256 * scale, weight_normed), vectors(256 * scale)),
    "standardised ResNet-26": lambda scale: (lambda: standardised_resnet(32 * scale), images),
    "GPT-2, 8 layers": lambda scale: (lambda: gpt2(64 * scale), tokens),
}
SCALES = (1, 2, 4, 8)


def built(case: Case) -> tuple[nn.Module, Any]:
    """A model of a case in evaluation mode, with bipolar activations, and its example."""
    torch.manual_seed(0)
    build, example = case[0](), case[1]()
    model = build.eval()
    if not any(isinstance(m, bipolar.BReLU) for m in model.modules()) and not isinstance(model, CharRNN):
        model = bipolar.convert(model, example=example)
    return model, example


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def one_pass(model: nn.Module, example: Any) -> None:
    with torch.no_grad():
        call(model, example)


def measured(name: str, case: Case, rounds: int) -> list[str]:
    model, example = built(case)
    runs: list[Callable[[], object]] = [
        lambda: one_pass(model, example),
        lambda: bipolar.symmetry(model, example),
        lambda: bipolar.fold(model, example),
    ]
    forward, symmetry, fold = (seconds for (seconds,) in best_of([timed(run) for run in runs], rounds, at_least=0))
    report = bipolar.symmetry(model, example)
    folded = sum(not reason for reason in report.activations.values())
    aim = AIMS.get(name)
    verdict = "" if aim is None else f"aim {aim:g} s: {'met' if symmetry <= aim else 'missed'}"
    millions = f"{parameters(model) / 1e6:.2f}"
    times = [f"{forward:.3f}", f"{symmetry:.2f}", f"{fold:.2f}"]
    return [name, f"{folded} of {len(report.activations)}", millions, *times, verdict]


def growth(name: str, family: Callable[[int], Case], rounds: int) -> list[str]:
    """The times of a family at all sizes, and the exponent of a power law through them."""
    cases = [built(family(scale)) for scale in SCALES]
    runs = [timed(lambda model=model, example=example: bipolar.symmetry(model, example)) for model, example in cases]  # type: ignore[misc]
    times = [seconds for (seconds,) in best_of(runs, rounds, at_least=0)]
    x = [math.log(parameters(model)) for model, _ in cases]
    y = [math.log(seconds) for seconds in times]
    centre = sum(x) / len(x)
    slope = sum((a - centre) * b for a, b in zip(x, y, strict=True)) / sum((a - centre) ** 2 for a in x)
    sizes = ", ".join(f"{parameters(model) / 1e6:.2f}" for model, _ in cases)
    seconds = ", ".join(f"{t:.2f}" for t in times)
    return [name, sizes, seconds, f"{slope:.2f} (aim {LINEAR}: {'met' if slope <= LINEAR else 'missed'})"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=2, help="rounds after the first, of which the best counts (default: 2)"
    )
    parser.add_argument("--record", action="store_true", help="write the tables into benchmarks/README.md too")
    arguments = parser.parse_args()
    rows = [measured(name, case, arguments.rounds) for name, case in MODELS.items()]
    header = ["model", "folded", "million parameters", "a pass, s", "symmetry, s", "fold, s", "verdict"]
    families = [growth(name, family, arguments.rounds) for name, family in FAMILIES.items()]
    head = f"{machine()}; float32; best of {arguments.rounds + 1} rounds."
    grown = markdown_table(["family", "million parameters", "symmetry, s", "exponent"], families)
    text = f"{head}\n\n{markdown_table(header, rows)}\n\n{grown}"
    print(text)
    if arguments.record:
        record("symmetry", text)


if __name__ == "__main__":
    main()
