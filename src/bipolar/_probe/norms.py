"""Norm layers, recognised by what they compute: an output that does not depend on the size of the input."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bipolar._activations.recognition import is_elementwise
from bipolar._tools.nested import tensors_in

#: How far the output may move when the input is doubled; a norm's ``eps`` lets it move a little.
TOLERANCE = 0.1


def is_norm(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> bool:
    """Whether a layer without weights gives nearly the same output for twice its input."""
    inputs = list(tensors_in((args, kwargs)))
    if len(inputs) != 1 or inputs[0].shape != output.shape or is_elementwise(module) or _has_weights(module):
        return False
    cuda = [output.device] if output.is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(cuda):
        doubled = module.forward(
            *(2 * value if isinstance(value, Tensor) else value for value in args),
            **{name: 2 * value if isinstance(value, Tensor) else value for name, value in kwargs.items()},
        )
        if not isinstance(doubled, Tensor) or doubled.shape != output.shape:
            return False
        return bool((doubled - output).norm() <= TOLERANCE * output.norm())


def has_unset_statistics(module: nn.Module) -> bool:
    """Whether a batch norm uses running statistics that are still those it was made with."""
    if not isinstance(module, _BatchNorm) or module.training or module.running_mean is None:
        return False
    variance = module.running_var
    return not bool(module.running_mean.any()) and variance is not None and bool((variance == 1).all())


def _has_weights(module: nn.Module) -> bool:
    return any(parameter.ndim > 1 for parameter in module.parameters())
