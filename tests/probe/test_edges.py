"""The edges between layers, through the torch functions between them."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar


class Between(nn.Module):
    """Two layers, and one that takes what ``f`` makes of their outputs."""

    def __init__(self, f: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.f = nn.Linear(4, 4), nn.Linear(4, 4), f
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.f(self.a(x), self.b(x)))


def _assigned(a: Tensor, b: Tensor) -> Tensor:
    out = torch.zeros_like(a)
    out[:, :2] = b[:, :2]
    return out


def _through_a_view(a: Tensor, b: Tensor) -> Tensor:
    out = a.new_zeros(a.shape)
    out.view(-1).add_(a.view(-1))
    return out


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return 2 * gradient


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda a, b: tF.relu(a).reshape(2, -1).view_as(a), ("a",)),
        (lambda a, b: a + b, ("a", "b")),
        (lambda a, b: a.add_(b), ("a", "b")),
        (lambda a, b: torch.cat([a[:1], b[1:]]), ("a", "b")),
        (lambda a, b: torch.where(b > 0, a, 0.0), ("a",)),  # a mask has no size to hand on
        (lambda a, b: torch.zeros_like(a) + b, ("b",)),
        (lambda a, b: a.softmax(-1) * b, ("b",)),
        (lambda a, b: tF.scaled_dot_product_attention(a, a, b), ("b",)),
        (lambda a, b: tF.layer_norm(a, (4,)), ()),
        (_assigned, ("b",)),
        (_through_a_view, ("a",)),
        (lambda a, b: cast(Any, _Doubled).apply(a), ("a",)),
    ],
)
def test_a_layer_is_fed_by_those_its_input_is_made_of(
    f: Callable[[Tensor, Tensor], Tensor], expected: tuple[str, ...]
) -> None:
    result = bipolar.probe(Between(f), torch.randn(2, 4))
    assert result["last"].fed_by == expected
    assert result["a"].fed_by == ()


def test_every_call_of_a_layer_has_its_own_edges() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.act(self.layer(x)) + x)

    result = bipolar.probe(Twice(), torch.randn(2, 4))
    assert [(layer.name, layer.fed_by) for layer in result] == [
        ("layer", ()),
        ("act", ("layer",)),
        ("layer (2)", ("act",)),
    ]
