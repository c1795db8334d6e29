"""The paper's two theorems, as statistical tests.

Each holds in expectation over i.i.d. channels. An estimate over n samples is allowed to be SIGMAS standard errors off:
under the theorem a test fails with a probability below 1e-6, two-sided (and the seed is fixed). That the tests can
tell a difference is shown on the plain activation, which breaks the theorem by far more than that.
"""

import math

import pytest
import torch
from torch import Tensor

import bipolar.functional as F
from bipolar._activations.patterns import PATTERNS, Pattern

SIGMAS = 5.0
SHAPE = (2000, 100)

INPUTS = {
    "normal, mean 0": lambda: torch.randn(SHAPE, dtype=torch.float64),
    "normal, mean 0.7": lambda: torch.randn(SHAPE, dtype=torch.float64) + 0.7,
    "normal, mean -3": lambda: 2 * torch.randn(SHAPE, dtype=torch.float64) - 3,
    "exponential, mean 2": lambda: torch.empty(SHAPE, dtype=torch.float64).exponential_(0.5),
    "uniform, mean -0.4": lambda: torch.rand(SHAPE, dtype=torch.float64) - 0.9,
    "two values, mean 10": lambda: 20.0 * torch.randint(0, 2, SHAPE).double(),
}
every_input = pytest.mark.parametrize("name", INPUTS)
every_pattern = pytest.mark.parametrize("pattern", PATTERNS)


def estimate(samples: Tensor) -> tuple[float, float]:
    """The mean of independent samples and how far it may be off."""
    return samples.mean().item(), SIGMAS * samples.std().item() / math.sqrt(samples.numel())


def mean_of(name: str) -> float:
    return float(name.split()[-1])


@every_input
@every_pattern
def test_theorem_1_bipolar_relu_halves_the_mean(name: str, pattern: Pattern) -> None:
    x = INPUTS[name]()
    mean, margin = estimate(F.brelu(x, pattern=pattern))
    assert abs(mean - mean_of(name) / 2) <= margin


@pytest.mark.parametrize("name", [name for name in INPUTS if "exponential" not in name and "two" not in name])
def test_theorem_1_does_not_hold_for_plain_relu(name: str) -> None:
    mean, margin = estimate(torch.relu(INPUTS[name]()))
    assert mean - mean_of(name) / 2 > 10 * margin


@every_input
@every_pattern
@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.0])
def test_theorem_2_bipolar_elu_moves_the_mean_towards_a_point_near_zero(
    name: str, pattern: Pattern, alpha: float
) -> None:
    x = INPUTS[name]()
    output, margin = estimate(F.belu(x, alpha, pattern=pattern))
    # the output mean is half way between the input mean and E[z], which the theorem puts into [-alpha, alpha] ...
    point = 2 * output - mean_of(name)
    assert -alpha - 2 * margin <= point <= alpha + 2 * margin
    # ... and which its proof names: saturated values, on one side for kept units and on the other for flipped ones
    positive = x > 0
    z = alpha * torch.where(positive, 1 - torch.exp(-x.abs()), torch.exp(-x.abs()) - 1)
    expected, spread = estimate(z)
    assert abs(point - expected) <= 2 * margin + spread


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_theorem_2_does_not_hold_for_plain_elu(alpha: float) -> None:
    x = INPUTS["normal, mean -3"]()
    output, margin = estimate(torch.nn.functional.elu(x, alpha))
    assert 2 * output + 3 > alpha + 20 * margin  # the mean is pushed past the interval
