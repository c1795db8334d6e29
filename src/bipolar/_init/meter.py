"""The size of a tensor, over all processes."""

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

    def channels(self, tensor: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """The mean and the statistic of each channel; ``dim`` counts channels."""
        values = tensor.detach().movedim(dim, 0).flatten(1).double()
        total = torch.stack((torch.full_like(values[:, 0], values.size(1)), values.sum(1), values.square().sum(1)))
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
        mean, second_moment = total[1] / total[0], total[2] / total[0]
        statistic = second_moment - mean.square() if self.target == "variance" else second_moment
        return mean.to(tensor), statistic.clamp(min=0).to(tensor)

    def everywhere(self, holds: bool, device: torch.device) -> bool:
        """Whether something holds in every process; ``device`` is one that the group can reduce over."""
        if self.group is None:
            return holds
        failures = torch.tensor(float(not holds), device=device)
        dist.all_reduce(failures, group=self.group)
        return not failures.item()
