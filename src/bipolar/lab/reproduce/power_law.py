"""Power laws through the errors of runs of several lengths, with the error of what they predict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class PowerLaw:
    r"""The line through points in logarithms of both axes.

    .. math::
        \log y = a + k \log x + \varepsilon, \quad \varepsilon \sim N(0, s^2)

    An error that cannot fall below a floor above zero lies above such a law in the end: far away it is a hope.

    Args:
        points: pairs of x and y, both positive, at three or more different x
    """

    points: Sequence[tuple[float, float]]

    def __post_init__(self) -> None:
        if len({x for x, _ in self.points}) < 3:
            raise ValueError(
                f"points: expected three or more different lengths, got {len({x for x, _ in self.points})}"
            )
        if any(value <= 0 for point in self.points for value in point):
            raise ValueError(f"points: expected positive numbers, got {list(self.points)}")

    @cached_property
    def _middle(self) -> tuple[float, float]:
        x, y = zip(*self._logarithms, strict=True)
        return math.fsum(x) / len(x), math.fsum(y) / len(y)

    @cached_property
    def _logarithms(self) -> list[tuple[float, float]]:
        return [(math.log(x), math.log(y)) for x, y in self.points]

    @cached_property
    def _width(self) -> float:
        return math.fsum((x - self._middle[0]) ** 2 for x, _ in self._logarithms)

    @cached_property
    def exponent(self) -> float:
        """k, negative where y falls."""
        x0, y0 = self._middle
        return math.fsum((x - x0) * (y - y0) for x, y in self._logarithms) / self._width

    @cached_property
    def _variance(self) -> float:
        x0, y0 = self._middle
        left = [y - y0 - self.exponent * (x - x0) for x, y in self._logarithms]
        return math.fsum(value * value for value in left) / (len(left) - 2)

    def at(self, x: float) -> float:
        """The value of the law."""
        x0, y0 = self._middle
        return math.exp(y0 + self.exponent * (math.log(x) - x0))

    def interval(self, x: float, share: float = 0.95) -> tuple[float, float]:
        """The interval that holds a new point with this probability, if the points follow such a law."""
        from scipy.stats import t

        off = math.log(x) - self._middle[0]
        deviation = math.sqrt(self._variance * (1 + 1 / len(self.points) + off * off / self._width))
        apart = float(t.ppf((1 + share) / 2, len(self.points) - 2)) * deviation
        return self.at(x) * math.exp(-apart), self.at(x) * math.exp(apart)
