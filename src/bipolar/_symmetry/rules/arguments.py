"""Tensors and named arguments in the calls that sign rules read."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from torch import Tensor

from bipolar._symmetry.recording import Recording
from bipolar._tools.nested import tensors_in

#: Takes a recording, the arguments of a function, and its output, to which it gives signs.
Rule: TypeAlias = Callable[[Recording, tuple[Any, ...], dict[str, Any], Any], None]


def named(args: tuple[Any, ...], kwargs: dict[str, Any], *names: str) -> tuple[Any, ...]:
    """Arguments by position or name, None where they are missing."""
    return tuple(args[i] if i < len(args) else kwargs.get(name) for i, name in enumerate(names))


def floats_in(values: Any) -> Iterator[Tensor]:
    return (t for t in tensors_in(values) if t.is_floating_point())


def shrunk(unknowns: Tensor) -> Tensor:
    """Unknowns with size 1 in every dimension along which they are the same."""
    for dim in range(unknowns.ndim):
        first = unknowns.narrow(dim, 0, 1) if unknowns.size(dim) else unknowns
        if unknowns.size(dim) > 1 and bool((unknowns == first).all()):
            unknowns = first
    return unknowns
