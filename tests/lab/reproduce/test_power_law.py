"""Power laws: exact on exact points, as torch's least squares on others, with intervals that hold what they say."""

import math

import pytest
import torch

from bipolar.lab.reproduce.power_law import PowerLaw

LENGTHS = [1.0, 2.0, 4.0, 8.0, 16.0]


def test_points_of_a_law_are_fitted_exactly() -> None:
    law = PowerLaw([(x, 3 * x**-0.2) for x in LENGTHS])
    assert law.exponent == pytest.approx(-0.2)
    assert law.at(1000.0) == pytest.approx(3 * 1000**-0.2)
    assert law.interval(1000.0) == pytest.approx((law.at(1000.0), law.at(1000.0)))


def test_it_is_the_least_squares_fit_in_logarithms() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(20, generator=generator, dtype=torch.float64) + 0.1
    y = torch.rand(20, generator=generator, dtype=torch.float64) + 0.1
    design = torch.stack([torch.ones_like(x), x.log()], dim=1)
    solution = torch.linalg.lstsq(design, y.log()[:, None]).solution.flatten()
    law = PowerLaw(list(zip(x.tolist(), y.tolist(), strict=True)))
    assert law.exponent == pytest.approx(float(solution[1]))
    assert law.at(0.7) == pytest.approx(float((solution[0] + solution[1] * math.log(0.7)).exp()))


def test_the_interval_holds_its_share_of_new_points() -> None:
    """Two thousand laws with noise: the number of new points within follows the binomial, here at five deviations."""
    generator = torch.Generator().manual_seed(2)
    trials, held = 2000, 0
    noise = 0.05 * torch.randn(trials, len(LENGTHS) + 1, generator=generator, dtype=torch.float64)
    for row in noise.tolist():
        law = PowerLaw([(x, 2 * x**-0.1 * math.exp(e)) for x, e in zip(LENGTHS, row, strict=False)])
        low, high = law.interval(64.0, 0.9)
        held += low <= 2 * 64**-0.1 * math.exp(row[-1]) <= high
    assert abs(held - 0.9 * trials) < 5 * math.sqrt(0.09 * trials)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([(1.0, 1.0), (2.0, 1.0), (2.0, 1.1)], "points: expected three or more different lengths, got 2"),
        ([(1.0, 1.0), (2.0, 1.0), (3.0, 0.0)], "points: expected positive numbers"),
    ],
)
def test_what_it_refuses(points: list[tuple[float, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PowerLaw(points)
