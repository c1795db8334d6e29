"""The solver for the scale of a weight."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bipolar._init.solver import UnsolvableError, solve


@given(factor=st.floats(1e-8, 1e8), power=st.floats(0.8, 4.0), floor=st.floats(0.0, 0.9))
def test_finds_the_scale_of_any_power_above_a_floor(factor: float, power: float, floor: float) -> None:
    solution = solve(lambda scale: floor + factor * scale**power, tol=1e-3, max_iter=40)
    assert abs(solution.after - 1) <= 1e-5
    assert solution.scale == pytest.approx(((1 - floor) / factor) ** (1 / power), rel=1e-3)


def test_a_line_needs_two_rounds() -> None:
    assert solve(lambda scale: 7.3 * scale**2, tol=1e-3, max_iter=40).rounds == 2


@pytest.mark.parametrize("level", [0.5, 3.0])
def test_what_stays_away_from_1_is_unsolvable(level: float) -> None:
    with pytest.raises(UnsolvableError, match="did not come within"):
        solve(lambda scale: level, tol=1e-3, max_iter=40)
