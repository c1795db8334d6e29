"""An input for a model, made up from what its first layer takes."""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from bipolar._rnn import StackedRNN
from bipolar._tools.calling import call
from bipolar._tools.imports import loaded
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


def _candidates(model: nn.Module) -> Iterator[Any]:
    for module in model.modules():
        parameter = next(module.parameters(recurse=False), None)
        options: dict[str, Any] = {} if parameter is None else {"dtype": parameter.dtype, "device": parameter.device}
        if isinstance(module, loaded("bipolar.models._char_rnn", "CharRNN")):
            yield torch.zeros(3, 2, dtype=torch.int64, device=cast(Tensor, module.embedding).device)
        elif isinstance(module, nn.Embedding):
            yield torch.zeros(2, 3, dtype=torch.int64, device=options["device"])
        elif isinstance(module, (StackedRNN, nn.RNNBase)):
            yield torch.ones(3, 2, module.input_size, **options)
        elif isinstance(module, nn.Linear):
            yield torch.ones(2, module.in_features, **options)
        elif isinstance(module, _ConvNd):
            for size in _SIZES:
                yield torch.ones(2, module.in_channels, *[size] * len(module.kernel_size), **options)
        else:
            continue
        return
