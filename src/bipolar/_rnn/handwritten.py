"""Limits of the hand-written backward passes: one derivative, in reverse mode, without transforms."""

import torch
from torch import Tensor


def is_eager(*tensors: Tensor | None) -> bool:
    """Whether a hand-written backward pass applies: not in export, in forward mode or in a torch.func transform."""
    return not (
        torch.compiler.is_exporting()
        or torch._C._are_functorch_transforms_active()
        or any(t is not None and torch.autograd.forward_ad.unpack_dual(t).tangent is not None for t in tensors)
    )


def refuse_unsupported_backward(grad: Tensor) -> None:
    """Refuses a second derivative and a batch of gradients: the backward pass works in place."""
    if torch.is_grad_enabled():
        raise RuntimeError("create_graph: the fast path has no second derivative; use StackedRNN(backend='reference')")
    if torch._C._functorch.is_legacy_batchedtensor(grad) or torch._C._functorch.is_batchedtensor(grad):
        raise RuntimeError("is_grads_batched: not on the fast path; use StackedRNN(backend='reference')")
