"""Under which circumstances a stack is called: evaluation, autocast, transforms of torch."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

#: For each layer its U, W and b.
Weights: TypeAlias = Sequence[tuple[Tensor, Tensor, Tensor | None]]


@contextlib.contextmanager
def evaluating(f: Any) -> Iterator[None]:
    """Has an activation, or any module, in evaluation mode: without randomness of its own."""
    modules = [m for m in f.modules() if m.training] if isinstance(f, nn.Module) else []
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module in modules:
            module.training = True


def without_autocast(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    kind = x.device.type
    available = torch.amp.is_autocast_available(kind)
    return torch.autocast(kind, enabled=False) if available else contextlib.nullcontext()


def under_autocast(input: Tensor, state: Tensor | None, weights: Weights) -> tuple[Tensor, Tensor | None, Weights]:
    """Everything in the precision that autocast asks for, if it is on."""
    kind = input.device.type
    if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        return input, state, weights
    dtype = torch.get_autocast_dtype(kind)
    lower = [(u.to(dtype), w.to(dtype), None if b is None else b.to(dtype)) for u, w, b in weights]
    return input.to(dtype), None if state is None else state.to(dtype), lower


def is_eager(*tensors: Tensor | None) -> bool:
    """Whether a hand-written backward pass can be used: not for export, forward-mode, or a transform of torch.func."""
    return not (
        torch.compiler.is_exporting()
        or torch._C._are_functorch_transforms_active()
        or any(t is not None and torch.autograd.forward_ad.unpack_dual(t).tangent is not None for t in tensors)
    )
