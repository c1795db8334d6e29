"""Bipolar activations against torch's plain ones: time forward and backward, and bytes kept for the backward pass.

The variants take turns in one run: torch's plain activation; the plain formula S f(S x), with S made beforehand; ours
in eager mode; and, where a C++ compiler is found, ours and the plain one under torch.compile. Each activation runs
alone and within a small network, because the tensors that a compiler keeps for the backward pass depend on the
neighbours.
"""

import argparse
import copy
import shutil
import time
from collections.abc import Callable

import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
import bipolar.functional as F
from benchmarks.common import best_of, machine, markdown_table, record
from bipolar._activations.patterns import signs

Function = Callable[[Tensor], Tensor]

FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "relu": (tF.relu, F.brelu),
    "elu": (tF.elu, F.belu),
    "leaky_relu": (tF.leaky_relu, F.bleaky_relu),
    "selu": (tF.selu, F.bselu),
    "gelu": (tF.gelu, F.bgelu),
    "silu": (tF.silu, F.bsilu),
}
INPUTS: dict[str, tuple[tuple[int, ...], torch.memory_format]] = {
    "64x160x32x32, channels first": ((64, 160, 32, 32), torch.contiguous_format),
    "64x160x32x32, channels last": ((64, 160, 32, 32), torch.channels_last),
    "6400x256": ((6400, 256), torch.contiguous_format),
}
#: The aims: forward and backward in at most this many times the time of the plain activation.
AIMS = {"relu": 1.15, "elu": 1.3}
HEADER = ["function", "variant", "forward ms", "backward ms", "both / plain", "MB kept"]


def inputs(shape: tuple[int, ...], memory_format: torch.memory_format) -> tuple[Tensor, Tensor]:
    """An input that needs gradients, and a gradient of its shape."""
    generator = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(shape, generator=generator).contiguous(memory_format=memory_format) for _ in range(2))
    return x.requires_grad_(), grad


def bytes_kept(f: Function, x: Tensor) -> int:
    """The size of all tensors that autograd keeps for the backward pass of ``f``, each counted once."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = f(x)
    del output
    return sum(kept.values())


def timed(f: Function, x: Tensor, grad: Tensor) -> Callable[[], tuple[float, float]]:
    def run() -> tuple[float, float]:
        x.grad = None
        start = time.perf_counter()
        output = f(x)
        middle = time.perf_counter()
        output.backward(grad)
        return middle - start, time.perf_counter() - middle

    return run


def measure(name: str, variants: dict[str, Function], x: Tensor, grad: Tensor, rounds: int) -> list[list[str]]:
    """One row for each variant; the others are compared with the first."""
    times = best_of([timed(f, x, grad) for f in variants.values()], rounds, at_least=3)
    rows = []
    for (variant, f), (forward, backward) in zip(variants.items(), times, strict=True):
        ratio = (forward + backward) / sum(times[0])
        aim = AIMS.get(name) if variant == "ours" else None
        verdict = "" if aim is None else f" (aim {aim}: {'met' if ratio <= aim else 'missed'})"
        kept = bytes_kept(f, x) / 1e6
        rows.append(
            [name, variant, f"{forward * 1e3:.2f}", f"{backward * 1e3:.2f}", f"{ratio:.2f}{verdict}", f"{kept:.1f}"]
        )
    return rows


def compiled(variants: dict[str, Function], *names: str) -> dict[str, Function]:
    """The same variants and, where there is a compiler, those with these names compiled."""
    if shutil.which("c++") is None:
        return variants
    torch.compiler.reset()
    return variants | {f"{name}, compiled": torch.compile(variants[name], dynamic=False) for name in names}


def measure_alone(
    name: str, shape: tuple[int, ...], memory_format: torch.memory_format, rounds: int
) -> list[list[str]]:
    plain, ours = FUNCTIONS[name]
    sign = signs(shape[1]).view(-1, *[1] * (len(shape) - 2))
    variants: dict[str, Function] = {"plain": plain, "formula": lambda x: sign * plain(sign * x), "ours": ours}
    return measure(name, compiled(variants, "plain", "ours"), *inputs(shape, memory_format), rounds)


def measure_in_a_network(name: str, rounds: int) -> list[list[str]]:
    """Two activations between three 1x1 convolutions, channels last."""
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(160, 160, 1) for _ in range(3)]

    def network(activation: nn.Module) -> nn.Module:
        first, second, third = copy.deepcopy(convolutions)
        layers = nn.Sequential(first, activation, second, copy.deepcopy(activation), third)
        for parameter in layers.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        return layers

    variants: dict[str, Function] = {
        "plain": network(bipolar.get_activation(name)),
        "ours": network(bipolar.get_activation(f"b{name}")),
    }
    x, grad = inputs((64, 160, 32, 32), torch.channels_last)
    return measure("network, " + name, compiled(variants, "plain", "ours"), x, grad, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of which the best counts (default: 20)")
    parser.add_argument("--record", action="store_true", help="write the tables into benchmarks/README.md too")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    parts = [f"{machine()}; float32; best of at least {rounds} rounds, all variants of a function taking turns."]
    print(parts[0])

    def show(title: str, rows: list[list[str]]) -> None:
        parts.append(f"**{title}**\n\n{markdown_table(HEADER, rows)}")
        print(f"\n{parts[-1]}", flush=True)

    for title, (shape, memory_format) in INPUTS.items():
        show(title, [row for name in FUNCTIONS for row in measure_alone(name, shape, memory_format, rounds)])
    rows = [row for name in ("relu", "elu") for row in measure_in_a_network(name, rounds)]
    show("in a network: three 1x1 convolutions and two activations, 64x160x32x32, channels last", rows)
    if arguments.record:
        record("activations", "\n\n".join(parts))


if __name__ == "__main__":
    main()
