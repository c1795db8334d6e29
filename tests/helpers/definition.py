"""The bipolar activations by their definition, channel by channel: slow, obvious, and independent of the library."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as tF
from torch import Tensor

import bipolar
import bipolar.functional as F

Function = Callable[[Tensor], Tensor]


def is_flipped(channel: int, channels: int, pattern: str) -> bool:
    if pattern == "alternate":
        return channel % 2 == 1
    return channel < channels // 2


def by_definition(f: Function, x: Tensor, dim: int, pattern: str) -> Tensor:
    """f(x_i) on the channels that are kept, -f(-x_i) on the flipped ones."""
    channels = x.size(dim)
    if channels == 0:
        return x.clone()
    outputs = [
        -f(-channel) if is_flipped(i, channels, pattern) else f(channel) for i, channel in enumerate(x.unbind(dim))
    ]
    return torch.stack(outputs, dim)


@dataclass(frozen=True)
class Case:
    """A bipolar activation with its arguments, beside torch's plain one with the same."""

    ours: Callable[..., Tensor]
    plain: Callable[..., Tensor]
    module: type[torch.nn.Module]
    arguments: dict[str, Any] = field(default_factory=dict)
    inplace: bool = False

    def __call__(self, x: Tensor, **kwargs: Any) -> Tensor:
        return self.ours(x, **self.arguments, **kwargs)

    def f(self, x: Tensor) -> Tensor:
        return self.plain(x, **self.arguments)


SLOPE = torch.tensor(0.3, dtype=torch.float64)


def _bprelu(x: Tensor, **kwargs: Any) -> Tensor:
    return F.bprelu(x, SLOPE.to(x.dtype), **kwargs)


def _prelu(x: Tensor) -> Tensor:
    return tF.prelu(x, SLOPE.to(x.dtype))


def _rrelu(x: Tensor) -> Tensor:  # in evaluation; torch's own knows no forward-mode derivative
    return tF.leaky_relu(x, (1 / 8 + 1 / 3) / 2)


CASES = {
    "brelu": Case(F.brelu, tF.relu, bipolar.BReLU, inplace=True),
    "belu": Case(F.belu, tF.elu, bipolar.BELU, inplace=True),
    "belu(0.5)": Case(F.belu, tF.elu, bipolar.BELU, {"alpha": 0.5}, inplace=True),
    "belu(-1)": Case(F.belu, tF.elu, bipolar.BELU, {"alpha": -1.0}, inplace=True),
    "bleaky_relu": Case(F.bleaky_relu, tF.leaky_relu, bipolar.BLeakyReLU, inplace=True),
    "bleaky_relu(0.2)": Case(F.bleaky_relu, tF.leaky_relu, bipolar.BLeakyReLU, {"negative_slope": 0.2}, inplace=True),
    "bleaky_relu(-1)": Case(F.bleaky_relu, tF.leaky_relu, bipolar.BLeakyReLU, {"negative_slope": -1.0}, inplace=True),
    "bprelu": Case(_bprelu, _prelu, bipolar.BPReLU),
    "brrelu": Case(F.brrelu, _rrelu, bipolar.BRReLU, inplace=True),
    "bselu": Case(F.bselu, tF.selu, bipolar.BSELU, inplace=True),
    "bcelu": Case(F.bcelu, tF.celu, bipolar.BCELU, inplace=True),
    "bcelu(2)": Case(F.bcelu, tF.celu, bipolar.BCELU, {"alpha": 2.0}, inplace=True),
    "bgelu": Case(F.bgelu, tF.gelu, bipolar.BGELU),
    "bgelu(tanh)": Case(F.bgelu, tF.gelu, bipolar.BGELU, {"approximate": "tanh"}),
    "bsilu": Case(F.bsilu, tF.silu, bipolar.BSiLU, inplace=True),
    "bsoftplus": Case(F.bsoftplus, tF.softplus, bipolar.BSoftplus),
    "bsoftplus(2)": Case(F.bsoftplus, tF.softplus, bipolar.BSoftplus, {"beta": 2.0, "threshold": 5.0}),
}
