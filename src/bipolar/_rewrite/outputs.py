"""Outputs of a model on an example, and the difference between those of two models."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bipolar._tools.calling import call
from bipolar._tools.nested import tensors_in_objects
from bipolar._tools.restoring import restored


def outputs_of(model: nn.Module, example: Any) -> list[Tensor]:
    """The floating-point tensors in a model's output on an example, in evaluation mode."""
    with restored(model), torch.no_grad():
        model.eval()
        return [t for t in tensors_in_objects(call(model, example)) if t.is_floating_point()]


def difference(before: Sequence[Tensor], after: Sequence[Tensor], tolerance: float, any_sign: bool = False) -> str:
    """The difference between the outputs of two models in words; empty if they agree.

    ``tolerance`` is a share of the largest value of each. With ``any_sign`` tensors agree that differ in signs alone.
    """
    if len(before) != len(after):
        return f"one gives out {len(before)} tensors, the other {len(after)}"
    for a, b in zip(before, after, strict=True):
        if a.is_meta:
            continue
        if a.shape != b.shape:
            return f"one gives out {tuple(a.shape)}, the other {tuple(b.shape)}"
        a, b = a.cpu().double(), b.cpu().double()
        finite = a[a.isfinite()]
        near = tolerance * float(finite.abs().max()) if finite.numel() else 0.0
        same = torch.allclose(a, b, atol=near, equal_nan=True)
        if not same and not (any_sign and torch.allclose(a.abs(), b.abs(), atol=near, equal_nan=True)):
            return f"they differ by {float((a - b).abs().max()):.2g}"
    return ""
