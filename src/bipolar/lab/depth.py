"""A measurement: a stack of a thousand layers, initialised by LSUV and trained for a few steps.

``python -m bipolar.lab.depth --out results/depth.json`` records it. The task is to repeat the input of the time step
before, so that every gradient passes through all layers.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bipolar
from bipolar._tools.files import write_json
from bipolar.lab.provenance import provenance

SETTINGS: dict[str, Any] = {"nonlinearity": "belu", "recompute": True}


def measure(layers: int, width: int, batch: int, window: int, steps: int, seed: int = 0) -> dict[str, Any]:
    """The deviation from unit variance after LSUV; the loss and the gradient norm of every layer's W at each step."""
    torch.manual_seed(seed)
    rnn, decoder = bipolar.StackedRNN(width, width, layers, **SETTINGS), nn.Linear(width, width)
    report = bipolar.lsuv_rnn_(rnn, torch.randn(batch, width))
    optimizer = torch.optim.Adam([*rnn.parameters(), *decoder.parameters()], lr=1e-3)
    x = torch.randn(window, batch, width)
    losses, norms = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        output, _ = rnn(x)
        loss = (decoder(output[1:]) - x[:-1]).square().mean()
        loss.backward()
        losses.append(loss.item())
        norms.append([w.grad.norm().item() for _, w, _ in rnn.layers() if w.grad is not None])
        optimizer.step()
    return {
        "largest_deviation_from_unit_variance": max(abs((row.after or 0.0) - 1) for row in report),
        "layers_left_as_they_were": sum(bool(row.note) for row in report) // 2,
        "losses": losses,
        "gradient_norms_by_step": norms,
        "smallest_over_largest_gradient_norm": [min(step) / max(step) for step in norms],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 1000), ("width", 32), ("batch", 64), ("window", 20), ("steps", 10), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    parser.add_argument("--out", type=Path, default=Path("runs/depth.json"), help="default: runs/depth.json")
    arguments = vars(parser.parse_args())
    out, start = arguments.pop("out"), time.perf_counter()
    results = measure(**arguments)
    seconds = round(time.perf_counter() - start, 1)
    configuration = {**arguments, **SETTINGS}
    write_json(out, {"item": "depth", "configuration": configuration, **provenance(), "seconds": seconds, **results})
    losses, ratios = results["losses"], results["smallest_over_largest_gradient_norm"]
    print(f"{arguments['layers']} layers, off unit variance by {results['largest_deviation_from_unit_variance']:.1e}")
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f} in {arguments['steps']} steps")
    print(f"smallest gradient norm of a layer at least {min(ratios):.3f} of the largest")
    print(out)


if __name__ == "__main__":
    main()
