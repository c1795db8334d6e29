"""How large a layer's output is, and the scale of its weight that makes it 1."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from bipolar._activations.moments import Statistic


class Meter:
    """Measures the variance or second moment of a tensor, over all processes of a group if there is one."""

    def __init__(self, target: Statistic, group: dist.ProcessGroup | None) -> None:
        self.target = target
        self.group = group

    def __call__(self, tensor: Tensor) -> float:
        values = tensor.detach()
        values = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
        mean = values.mean()
        variance = (values - mean).square_().mean()  # ten times faster than torch.var on a CPU
        if self.group is not None:
            total = torch.stack((torch.ones_like(mean), mean, variance + mean.square())).double() * values.numel()
            dist.all_reduce(total, group=self.group)
            mean, second_moment = total[1] / total[0], total[2] / total[0]
            variance = second_moment - mean.square()
        return float(variance if self.target == "variance" else variance + mean.square())

    def mean(self, tensor: Tensor) -> float:
        """The mean over all processes."""
        values = tensor.detach().double()
        total = torch.stack((values.sum(), torch.full_like(values.sum(), values.numel())))
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
        return float(total[0] / total[1])

    def everywhere(self, holds: bool, device: torch.device) -> bool:
        """Whether something holds in every process; ``device`` is one that the processes can talk about."""
        if self.group is None:
            return holds
        failures = torch.tensor(float(not holds), device=device)
        dist.all_reduce(failures, group=self.group)
        return not failures.item()


class Solution(NamedTuple):
    before: float
    after: float
    scale: float
    rounds: int


class UnsolvableError(Exception):
    """No scale was found; the message says why."""


def solve(statistic: Callable[[float], float], tol: float, max_iter: int) -> Solution:
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
        if best[0] <= tol / 100:  # it costs little to be much closer than asked for
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
        if bracketed and (len(values) % 5 == 0 or not low < x < high):  # now and then whatever the secant says
            x = (low + high) / 2
        elif not low < x < high:
            x = previous[0] + math.copysign(3.0, -y)
    if not any(values):
        raise UnsolvableError("is 0 at every scale: the layer is dead")
    if best[0] > tol:
        raise UnsolvableError(
            f"did not come within {tol:g} of 1 in {len(values)} rounds: from {values[0]:.4g} to {values[-1]:.4g}"
        )
    return Solution(before=values[0], after=best[2], scale=math.exp(best[1]), rounds=len(values))
