"""Looking into a model without leaving a trace in it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Puts the training flag of every module and the contents of every buffer back as they were, come what may."""
    training = {module: module.training for module in model.modules()}
    buffers = [
        (module._buffers, name, buffer, None if is_lazy(buffer) else buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for module, flag in training.items():
            module.training = flag
        with torch.no_grad():
            for home, name, buffer, before in buffers:
                if before is not None:
                    buffer.copy_(before)
                    home[name] = buffer  # the forward may have put another tensor there


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, out of what distributed data parallel and ``torch.compile`` wrap around it."""
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
    """``model`` of a batch, see :func:`arguments_of`."""
    args, kwargs = arguments_of(batch)
    return model(*args, **kwargs)


def tensors_in(values: Any) -> Iterator[Tensor]:
    """All tensors within nested tuples, lists, dictionaries and dataclasses."""
    if isinstance(values, Tensor):
        yield values
    elif hasattr(values, "values") and hasattr(values, "keys"):
        yield from tensors_in(list(values.values()))
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from tensors_in(value)
    elif is_dataclass(values):
        yield from tensors_in(vars(values))


def tensors_within(values: Any) -> Iterator[Tensor]:
    """All tensors within anything: also within the attributes of objects that nobody here knows."""
    waiting, seen = [values], set()
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, Tensor):
            yield value
        elif id(value) not in seen and not isinstance(value, (str, bytes, int, float, complex, type, nn.Module)):
            seen.add(id(value))
            if isinstance(value, Mapping):
                parts = list(value.values())
            elif isinstance(value, (tuple, list, set, frozenset)):
                parts = list(value)
            else:
                parts = list(getattr(value, "__dict__", {}).values())
                parts += [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
            waiting = parts + waiting
