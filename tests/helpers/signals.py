"""A small network, and the variance of the outputs of any network."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bipolar._tools.calling import call


@contextmanager
def measured(model: nn.Module) -> Iterator[dict[str, float]]:
    """The variance of the first output of every module during a forward pass, taken independently of the library."""
    found: dict[str, float] = {}

    def hook(name: str) -> Callable[..., None]:
        def keep(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor) and name not in found:
                found[name] = output.detach().double().var(correction=0).item()

        return keep

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    yield found
    for handle in handles:
        handle.remove()


def variances(model: nn.Module, batch: Any) -> dict[str, float]:
    """The variances in a run like that of LSUV: in evaluation mode, batch norm on the statistics of the batch."""
    model = copy.deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    with torch.no_grad(), measured(model) as found:
        call(model, batch)
    return found


def mlp(*activations: nn.Module, width: int = 48) -> nn.Sequential:
    layers: list[nn.Module] = []
    for activation in activations:
        layers += [nn.Linear(width, width), activation]
    return nn.Sequential(*layers, nn.Linear(width, 10))
