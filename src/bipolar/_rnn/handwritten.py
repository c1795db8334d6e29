"""Limits of the hand-written backward passes: one derivative, in reverse mode, without transforms."""

import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_eager(*tensors: Tensor | None) -> bool:
    """Whether a hand-written backward pass applies: not in export, a trace, forward mode or a torch.func transform."""
    return not (
        torch.compiler.is_exporting()
        or torch._C._is_tracing()  # torch.jit.trace
        or torch._C._are_functorch_transforms_active()
        or (forward_ad._current_level >= 0 and any(_has_tangent(t) for t in tensors))
    )


def _has_tangent(tensor: Tensor | None) -> bool:
    return tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None


def refuse_unsupported_backward(grad: Tensor) -> None:
    """Refuses a second derivative and a batch of gradients: the backward pass works in place."""
    if torch.is_grad_enabled():
        raise RuntimeError("create_graph: the fast path has no second derivative; use StackedRNN(backend='reference')")
    if torch._C._functorch.is_legacy_batchedtensor(grad) or torch._C._functorch.is_batchedtensor(grad):
        raise RuntimeError("is_grads_batched: not on the fast path; use StackedRNN(backend='reference')")
