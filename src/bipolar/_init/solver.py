"""The scale of a weight that gives a layer's output unit size."""

import math
from collections.abc import Callable
from typing import NamedTuple


class Scaling(NamedTuple):
    """The statistic before and after, the scale that was found, and the number of evaluations."""

    before: float
    after: float
    scale: float
    rounds: int


class UnsolvableError(Exception):
    """No scale was found; the message says why."""


def solve(statistic: Callable[[float], float], tol: float, max_iter: int) -> Scaling:
    """The scale at which ``statistic(scale)`` is 1, from at most ``max_iter`` evaluations.

    A secant method on logarithms, kept within a bracket once there is one. Without a bias and with a ReLU the logarithm
    of the statistic is a line of slope 2, and the second evaluation only confirms the first step.
    """
    x, low, high = 0.0, -math.inf, math.inf
    values: list[float] = []
    best = (math.inf, x, math.nan)  # distance, logarithm of the scale, statistic
    previous: tuple[float, float] | None = None
    while len(values) < max_iter and abs(x) < 40:
        value = statistic(math.exp(x))
        if not math.isfinite(value):
            raise UnsolvableError("gives NaN or infinity")
        values.append(value)
        best = min(best, (abs(value - 1), x, value))
        if best[0] <= tol / 100:  # much closer than asked for costs little
            break
        if value < 1:
            low, high = x, high if high > x else math.inf
        else:
            low, high = low if low < x else -math.inf, x
        bracketed = math.isfinite(low + high)
        if bracketed and high - low < 1e-6:  # as close as this precision allows
            break
        if value == 0:  # flat: no slope to follow
            x, previous = (low + high) / 2 if bracketed else x + 3.0, None
            continue
        y = math.log(value)
        slope = (y - previous[1]) / (x - previous[0]) if previous and x != previous[0] else 2.0
        previous = (x, y)
        x += max(-12.0, min(12.0, -y / slope)) if slope > 0 else math.copysign(1.0, -y)
        if bracketed and (len(values) % 5 == 0 or not low < x < high):  # now and then, in case the secant stalls
            x = (low + high) / 2
        elif not low < x < high:
            x = previous[0] + math.copysign(3.0, -y)
    if not any(values):
        raise UnsolvableError("is 0 at every scale: the layer is dead")
    if best[0] > tol:
        raise UnsolvableError(
            f"did not come within {tol:g} of 1 in {len(values)} rounds: from {values[0]:.4g} to {values[-1]:.4g}"
        )
    return Scaling(before=values[0], after=best[2], scale=math.exp(best[1]), rounds=len(values))
