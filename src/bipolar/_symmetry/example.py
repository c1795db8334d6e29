"""Example inputs, made up from the first layer of a model that tells the shape of its input."""

from collections.abc import Iterable
from functools import singledispatch
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from bipolar._rnn import StackedRNN
from bipolar._tools.calling import call
from bipolar._tools.restoring import restored

#: Edges of images, and lengths of sequences, that are tried in turn.
_SIZES = (32, 28, 64, 224, 16, 8)


def example_for(model: nn.Module, example: Any) -> Any:
    """The example itself, or one that is made up where it is None."""
    if example is not None:
        return example
    with restored(model), torch.no_grad():
        model.eval()
        for candidate in _candidates(model):
            try:
                call(model, candidate)
            except Exception:  # noqa: S112 - whatever a model says to a wrong input
                continue
            return candidate
    raise ValueError(
        f"example: no input for {type(model).__name__} could be made up from its first layer; give one, as a tensor, "
        "a tuple of arguments or a dictionary of them"
    )


def _candidates(model: nn.Module) -> Iterable[Any]:
    found = (inputs_for(module) for module in model.modules())
    return next((inputs for inputs in found if inputs is not None), ())


@singledispatch
def inputs_for(module: nn.Module) -> Iterable[Any] | None:
    """Inputs to try on a module, or None for one that does not tell the shape; ``inputs_for.register`` adds a class."""
    return None


@inputs_for.register
def _(module: nn.Embedding) -> Iterable[Any]:
    return [torch.zeros(2, 3, dtype=torch.int64, device=module.weight.device)]


@inputs_for.register(StackedRNN)
@inputs_for.register(nn.RNNBase)
def _(module: StackedRNN | nn.RNNBase) -> Iterable[Any]:
    return [torch.ones(3, 2, module.input_size, **_like_parameters(module))]


@inputs_for.register
def _(module: nn.Linear) -> Iterable[Any]:
    return [torch.ones(2, module.in_features, **_like_parameters(module))]


@inputs_for.register
def _(module: _ConvNd) -> Iterable[Any]:
    shapes = ([size] * len(module.kernel_size) for size in _SIZES)
    return (torch.ones(2, module.in_channels, *shape, **_like_parameters(module)) for shape in shapes)


def _like_parameters(module: nn.Module) -> dict[str, Any]:
    """The dtype and device of a module's own parameters."""
    parameter = next(module.parameters(recurse=False), None)
    return {} if parameter is None else {"dtype": parameter.dtype, "device": parameter.device}
