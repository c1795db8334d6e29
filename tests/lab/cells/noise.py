"""Checks of masks of noise by their statistics."""

from torch import Tensor


def check_rate(kept: Tensor, rate: float) -> None:
    """A mask of zeros and ones has zeros at the rate, within five standard errors."""
    assert set(kept.unique().tolist()) == {0.0, 1.0}
    error = (rate * (1 - rate) / kept.numel()) ** 0.5
    assert abs(float(1 - kept.double().mean()) - rate) < 5 * error
