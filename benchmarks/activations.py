"""Bipolar activations against torch's plain ones: time forward and backward, and bytes kept for the backward pass.

Four variants, side by side in one run: torch's plain activation; the plain formula S f(S x), with S made beforehand;
ours in eager mode; ours under ``torch.compile`` (where a C++ compiler is found).
"""

import argparse
import shutil
import time
from collections.abc import Callable

import torch
import torch.nn.functional as tF
from common import best_of, machine, markdown_table, record
from torch import Tensor

import bipolar.functional as F
from bipolar.pattern import signs

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
#: What we aim for: forward and backward at most this many times the plain activation.
AIMS = {"relu": 1.15, "elu": 1.3}


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


def measure(name: str, shape: tuple[int, ...], memory_format: torch.memory_format, rounds: int) -> list[list[str]]:
    """One row for each variant: forward ms, backward ms, both relative to the plain activation, MB kept."""
    plain, ours = FUNCTIONS[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).contiguous(memory_format=memory_format).requires_grad_()
    grad = torch.randn(shape, generator=generator).contiguous(memory_format=memory_format)
    sign = signs(shape[1]).view(-1, *[1] * (len(shape) - 2))
    variants: dict[str, Function] = {"plain": plain, "formula": lambda x: sign * plain(sign * x), "ours": ours}
    if shutil.which("c++") or shutil.which("g++"):
        torch.compiler.reset()
        variants["ours, compiled"] = torch.compile(ours, dynamic=False)
    times = best_of(rounds, [timed(f, x, grad) for f in variants.values()])
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25, help="rounds of which the best counts (default: 25)")
    parser.add_argument("--record", action="store_true", help="write the tables into benchmarks/README.md too")
    arguments = parser.parse_args()
    header = ["function", "variant", "forward ms", "backward ms", "both / plain", "MB kept"]
    parts = [f"{machine()}; float32; best of {arguments.rounds} rounds, all variants of a function taking turns."]
    print(parts[0])
    for title, (shape, memory_format) in INPUTS.items():
        rows = [row for name in FUNCTIONS for row in measure(name, shape, memory_format, arguments.rounds)]
        parts.append(f"**{title}**\n\n{markdown_table(header, rows)}")
        print(f"\n{parts[-1]}", flush=True)
    if arguments.record:
        record("activations", "\n\n".join(parts))


if __name__ == "__main__":
    main()
