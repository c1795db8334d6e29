"""Tensors in nested structures."""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from torch import Tensor, nn


def tensors_in(values: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists, dictionaries and dataclasses; other objects are not opened."""
    if isinstance(values, Tensor):
        yield values
    elif hasattr(values, "values") and hasattr(values, "keys"):
        yield from tensors_in(list(values.values()))
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from tensors_in(value)
    elif is_dataclass(values):
        yield from tensors_in(vars(values))


def tensors_in_objects(values: Any) -> Iterator[Tensor]:
    """All tensors in nested containers and in the attributes of any object but a module."""
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
