"""Steps of ``bipolar.optim.Muon`` and of a pin, against optimisers of torch and the forward and backward pass.

All methods take turns in one run, on gradients of a real backward pass: of the paper's stack, 36 layers of 256 units,
batch 128, 50 time steps, and of WideResNet-16-2 without norm, batch 128. The rate is zero, which saves no work.
``torch.optim.Muon`` computes in bfloat16, takes matrices alone and gets convolutions flattened into them; its own line
leaves out what Adam would take on the rest. The pin is measured alone, as the hook of an optimiser that has nothing to
do.
"""

import argparse
import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from benchmarks.common import best_of, machine, markdown_table, record, timed
from bipolar.models import WideResNet
from bipolar.optim import Muon, groups, pin

BATCH, STEPS = 128, 50
AIMS = {"bipolar.optim.Muon": 0.10, "pin": 0.02}


def stack() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = bipolar.StackedRNN(256, 256, 36)
    x = torch.randn(STEPS, BATCH, 256)
    return model, lambda: model(x)[0].square().mean()


def images() -> tuple[nn.Module, Callable[[], Tensor]]:
    model: Any = WideResNet(16, 2, activation="elu", dropout=0.0)
    model.to(memory_format=torch.channels_last)
    x = torch.randn(BATCH, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.randint(10, (BATCH,))
    return model, lambda: tF.cross_entropy(model(x), labels)


NETWORKS = {"StackedRNN 36 x 256": stack, "WideResNet-16-2": images}


def flattened(model: nn.Module) -> list[nn.Parameter]:
    """Copies of the weights that Muon takes, as matrices, with their gradients."""
    copies = []
    for _, p in next(group["params"] for group in groups(model) if group["method"] == "muon"):
        copies.append(nn.Parameter(p.detach().flatten(1).clone()))
        copies[-1].grad = p.grad.flatten(1).clone()
    return copies


def optimizers(model: nn.Module) -> dict[str, Callable[[], object]]:
    """The step of each method; the gradients are there."""
    still = copy.deepcopy(model)
    still.zero_grad()
    idle = torch.optim.SGD(still.parameters())
    pin(idle, still)
    return {
        "torch.optim.SGD, momentum": torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9).step,
        "torch.optim.Adam": torch.optim.Adam(model.parameters(), lr=0.0).step,
        "torch.optim.Adam, fused": torch.optim.Adam(model.parameters(), lr=0.0, fused=True).step,
        "torch.optim.Muon, matrices alone": torch.optim.Muon(flattened(model), lr=0.0).step,
        "bipolar.optim.Muon": Muon(groups(model), lr=0.0, adam_lr=0.0).step,
        "bipolar.optim.Muon, four iterations": Muon(groups(model), lr=0.0, adam_lr=0.0, ns_steps=4).step,
        "bipolar.optim.Muon, in bfloat16": Muon(groups(model), lr=0.0, adam_lr=0.0, ns_dtype=torch.bfloat16).step,
        "pin": idle.step,
    }


def compare(network: str, rounds: int, at_least: float) -> list[list[str]]:
    torch.manual_seed(0)
    model, loss = NETWORKS[network]()

    def both_passes() -> None:
        model.zero_grad()
        loss().backward()

    both_passes()
    methods = {"forward and backward": both_passes} | optimizers(model)
    times = [seconds for (seconds,) in best_of([timed(run) for run in methods.values()], rounds, at_least)]
    rows = []
    for name, seconds in zip(methods, times, strict=True):
        share = seconds / times[0]
        aim = AIMS.get(name)
        verdict = "" if aim is None else f"aim {100 * aim:.0f} %: {'met' if share <= aim else 'missed'}"
        rows.append([network, name, f"{1000 * seconds:.1f}", f"{100 * share:.1f} %", verdict])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds at least, of which the best counts (default: 5)")
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    arguments = parser.parse_args()
    rows = [row for network in NETWORKS for row in compare(network, arguments.rounds, at_least=20)]
    head = f"{machine()}; float32, batch {BATCH}; best of {arguments.rounds} rounds or more."
    table = markdown_table(["network", "method", "ms", "of forward and backward", ""], rows)
    text = f"{head}\n\n{table}"
    print(text)
    if arguments.record:
        record("optim", text)


if __name__ == "__main__":
    main()
