"""Adaptive gradient clipping against its formula, one unit after another."""

import pytest
import torch
from torch import Tensor, nn

from bipolar.optim import clip_by_unit_


def slow_clip(weight: Tensor, gradient: Tensor, clipping: float, eps: float) -> tuple[Tensor, list[bool]]:
    """The formula for each unit; a bias or a scalar is one unit."""
    units = list(zip(weight, gradient, strict=True)) if weight.ndim > 1 else [(weight, gradient)]
    clipped, results = [], []
    for w, g in units:
        limit = clipping * max(w.norm().item(), eps)
        clipped.append(g.norm().item() > limit)
        results.append(g * (limit / g.norm()) if clipped[-1] else g)
    return (torch.stack(results) if weight.ndim > 1 else results[0]), clipped


def test_units_are_clipped_as_the_formula_says() -> None:
    params = [nn.Parameter(torch.randn(shape)) for shape in [(6, 4), (5, 3, 3, 3), (4, 2, 3), (7,), ()]]
    nn.init.zeros_(params[0][2])
    without = nn.Parameter(torch.randn(3))
    for p in params:
        p.grad = (
            torch.randn_like(p) * torch.logspace(-3, 1, len(p)).view(-1, *[1] * (p.ndim - 1))
            if p.ndim
            else torch.ones(())
        )
    params[0].grad[1] = 0
    expected = [slow_clip(p.detach(), p.grad.clone(), 0.1, 1e-3) for p in params]
    share = clip_by_unit_([*params, without], 0.1)
    for p, (gradient, _) in zip(params, expected, strict=True):
        torch.testing.assert_close(p.grad, gradient)
    flags = [flag for _, units in expected for flag in units]
    assert 0 < sum(flags) < len(flags)
    assert share.item() == pytest.approx(sum(flags) / len(flags))
    assert without.grad is None


def test_one_parameter_none_and_wrong_ones() -> None:
    p = nn.Parameter(torch.ones(2, 2))
    assert clip_by_unit_(p) == 0
    p.grad = torch.ones(2, 2)
    assert clip_by_unit_(p, 0.5) == 1
    torch.testing.assert_close(p.grad, torch.full((2, 2), 0.5))
    assert clip_by_unit_(iter([p]), 0.6) == 0
    with pytest.raises(ValueError, match="clipping: expected a positive number, got 0"):
        clip_by_unit_(p, 0)
    with pytest.raises(ValueError, match="eps: expected a positive number, got -1"):
        clip_by_unit_(p, 0.1, eps=-1)
    p.grad = torch.ones(2, 2).to_sparse()
    with pytest.raises(ValueError, match="a gradient is sparse"):
        clip_by_unit_(p)
