"""Networks of linear layers, a loss, and the size of the outputs of any network."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import bipolar
from bipolar._tools.calling import call


@contextmanager
def measured(model: nn.Module, target: str) -> Iterator[dict[str, float]]:
    """Variance or second moment of every module's first output in a forward pass, independently of the library."""
    found: dict[str, float] = {}

    def hook(name: str) -> Callable[..., None]:
        def keep(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor) and name not in found:
                y = output.detach().double()
                found[name] = (y.square().mean() if target == "second_moment" else y.var(correction=0)).item()

        return keep

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    yield found
    for handle in handles:
        handle.remove()


def variances(model: nn.Module, batch: Any, target: str = "variance") -> dict[str, float]:
    """Variances, or second moments, in a run like LSUV's: in evaluation mode, batch norm on the batch's statistics."""
    model = copy.deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    with torch.no_grad(), measured(model, target) as found:
        call(model, batch)
    return found


def mlp(*activations: nn.Module, width: int = 48) -> nn.Sequential:
    """A linear layer before each of these activations, and one after the last."""
    layers: list[nn.Module] = []
    for activation in activations:
        layers += [nn.Linear(width, width), activation]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def loss(output: Tensor) -> Tensor:
    return output.square().mean()


def deep(gain: float, depth: int = 30, activation: type[nn.Module] = bipolar.BReLU) -> nn.Sequential:
    """Layers of 64 units with normal weights of this gain."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        linear = nn.Linear(64, 64, bias=False)
        nn.init.normal_(linear.weight, std=gain / 8)
        layers += [linear, activation()]
    return nn.Sequential(*layers)
