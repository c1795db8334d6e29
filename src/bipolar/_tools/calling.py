"""Calls of any model with any kind of batch."""

from typing import Any, cast

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside the wrappers of distributed data parallel and ``torch.compile``."""
    if isinstance(model, DistributedDataParallel):
        model = cast(nn.Module, model.module)
    return cast(nn.Module, getattr(model, "_orig_mod", model))


def arguments_of(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A batch as arguments: a tensor as the only one, a tuple or list as several, a dictionary by name."""
    if isinstance(batch, dict) or hasattr(batch, "keys"):
        return (), dict(batch)
    if isinstance(batch, (tuple, list)) and not hasattr(batch, "_fields"):
        return tuple(batch), {}
    return (batch,), {}


def call(model: nn.Module, batch: Any) -> Any:
    """The output of ``model`` for a batch; see :func:`arguments_of`."""
    args, kwargs = arguments_of(batch)
    return model(*args, **kwargs)
