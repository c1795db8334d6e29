"""``bipolar.lsuv_`` against the public ``lsuv`` package: time, forward passes, and how close each comes.

On a WideResNet-28-2 without norm layers and on an MLP of 100 layers, with a batch of 64 images of 32x32. Both measure a
layer's own output. The result of each is measured independently: the largest deviation from unit variance over all
layers, in evaluation mode, on the same batch.
"""

import argparse
import copy
import time
from collections.abc import Callable

import torch
from lsuv import lsuv_with_singlebatch  # the package, not this file, if run as `python -m benchmarks.lsuv`
from torch import Tensor, nn

import bipolar
from benchmarks.common import best_of, machine, markdown_table, record

#: The aims, relative to the package at its defaults.
FASTER, CLOSER = 10, 100


class Block(nn.Module):
    """Two convolutions, each after a ReLU, around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.shortcut(x) + self.conv2(torch.relu(self.conv1(torch.relu(x))))
        return output


def wide_resnet(depth: int = 28, widen: int = 2) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    inputs = 16
    for outputs, stride in ((16 * widen, 1), (32 * widen, 2), (64 * widen, 2)):
        for i in range((depth - 4) // 6):
            layers.append(Block(inputs, outputs, stride if i == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.ReLU(), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(inputs, 10))


def mlp(depth: int = 100, width: int = 256) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(3 * 32 * 32, width)]
    for _ in range(depth - 1):
        layers += [nn.ReLU(), nn.Linear(width, width)]
    return nn.Sequential(*layers)


def deviation(model: nn.Module, batch: Tensor) -> float:
    """The largest |variance - 1| of the output of any layer with weights."""
    found: list[float] = []

    def keep(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        found.append(abs(output.double().var(correction=0).item() - 1))

    handles = [m.register_forward_hook(keep) for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
    with torch.no_grad():
        model.eval()(batch)
    for handle in handles:
        handle.remove()
    return max(found)


def measure(
    title: str, model: nn.Module, methods: dict[str, Callable[[nn.Module, Tensor], object]], batch: Tensor, rounds: int
) -> list[list[str]]:
    passes, deviations = dict.fromkeys(methods, 0), dict.fromkeys(methods, 0.0)

    def run(name: str) -> Callable[[], tuple[float]]:
        def once() -> tuple[float]:
            fresh = copy.deepcopy(model)
            calls = 0

            def count(*_: object) -> None:
                nonlocal calls
                calls += 1

            handle = fresh.register_forward_pre_hook(count)
            torch.manual_seed(0)
            start = time.perf_counter()
            methods[name](fresh, batch)
            seconds = time.perf_counter() - start
            handle.remove()
            passes[name], deviations[name] = calls, deviation(fresh, batch)
            return (seconds,)

        return once

    times = [seconds for (seconds,) in best_of([run(name) for name in methods], rounds, at_least=0)]
    ours = list(methods).index("bipolar.lsuv_")
    rows = []
    for i, name in enumerate(methods):
        speed, closeness = times[i] / times[ours], deviations[name] / deviations["bipolar.lsuv_"]
        verdict = f"{speed:.0f}x slower, {closeness:.0f}x farther off" if name.startswith("lsuv") else ""
        rows.append([title, name, f"{times[i]:.3f}", str(passes[name]), f"{deviations[name]:.2g}", verdict])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=1, help="rounds after the first, of which the best counts (default: 1)"
    )
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    batch = torch.randn(64, 3, 32, 32)
    methods: dict[str, Callable[[nn.Module, Tensor], object]] = {
        "bipolar.lsuv_": lambda model, batch: bipolar.lsuv_(model, batch, at="output"),
        "lsuv 0.3.0": lambda model, batch: lsuv_with_singlebatch(model, batch, verbose=False),
        "lsuv 0.3.0, std_tol=1e-3": lambda model, batch: lsuv_with_singlebatch(
            model, batch, std_tol=1e-3, verbose=False
        ),
        "one forward pass, for comparison": lambda model, batch: model.eval().requires_grad_(False)(batch),
    }
    rows = []
    for title, model in (("WideResNet-28-2", wide_resnet()), ("MLP of 100 layers", mlp())):
        rows += measure(title, model, methods, batch, arguments.rounds)
    head = f"{machine()}; float32; best of {arguments.rounds + 1} rounds, all methods taking turns."
    aims = f"Aim, against the package as it comes: {FASTER}x faster, {CLOSER}x closer."
    table = markdown_table(["model", "method", "seconds", "forward passes", "deviation", "against ours"], rows)
    text = f"{head} {aims}\n\n{table}"
    print(text)
    if arguments.record:
        record("lsuv", text)


if __name__ == "__main__":
    main()
