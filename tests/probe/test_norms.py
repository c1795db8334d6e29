"""Norm layers are recognised by what they compute."""

import pytest
import torch
from torch import Tensor, nn

import bipolar


class HandWritten(nn.Module):
    def forward(self, hidden: Tensor, eps: float = 1e-6) -> Tensor:
        return hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + eps)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.LayerNorm(8), True),
        (nn.RMSNorm(8), True),
        (nn.BatchNorm1d(8), True),
        (nn.BatchNorm1d(8).eval(), False),
        (HandWritten(), True),
        (nn.Dropout(0.5), False),
        (nn.Identity(), False),
        (nn.Softmax(-1), False),
        (nn.ReLU(), False),
        (nn.Linear(8, 8), False),
    ],
)
def test_by_what_they_compute(module: nn.Module, expected: bool) -> None:
    (layer,) = bipolar.probe(module, torch.randn(16, 8))
    assert layer.norm is expected
