"""The norm stabiliser against its formula."""

import pytest
import torch

from bipolar.lab.cells.norm_stabiliser import norm_stabiliser


def test_formula() -> None:
    outputs = torch.randn(4, 3, 5, dtype=torch.float64)
    expected = 0.0
    for b in range(3):
        for t in range(1, 4):
            now, before = (float(sum(unit**2 for unit in outputs[step, b])) ** 0.5 for step in (t, t - 1))
            expected += 20 * (now - before) ** 2 / 3 / 3
    assert float(norm_stabiliser(outputs, 20)) == pytest.approx(expected)


def test_gradients() -> None:
    outputs = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: norm_stabiliser(x, 2), outputs)


def test_units_that_are_all_zero_have_a_gradient() -> None:
    """ReLU units may all be zero, where the norm has a kink."""
    outputs = torch.zeros(3, 2, 4)
    outputs[1] = 1
    outputs.requires_grad_()
    norm_stabiliser(outputs, 1).backward()
    assert outputs.grad.isfinite().all()
    assert outputs.grad[1].all()


def test_a_constant_norm_costs_nothing() -> None:
    outputs = torch.nn.functional.normalize(torch.randn(4, 3, 5, dtype=torch.float64), dim=-1)
    assert float(norm_stabiliser(outputs, 500)) == pytest.approx(0, abs=1e-12)
    assert float(norm_stabiliser(torch.randn(4, 3, 5), 0)) == 0


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"outputs: expected a shape of \(time, batch, width\).*got \(1, 2, 3\)"):
        norm_stabiliser(torch.zeros(1, 2, 3), 1)
    with pytest.raises(ValueError, match=r"outputs: expected a shape of \(time, batch, width\).*got \(2, 3\)"):
        norm_stabiliser(torch.zeros(2, 3), 1)
    with pytest.raises(ValueError, match="beta: expected a number that is not negative, got -1"):
        norm_stabiliser(torch.zeros(2, 2, 3), -1)
