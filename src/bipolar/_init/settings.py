"""The settings of an LSUV pass, with the tools that every layer is scaled by."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bipolar._init.meter import Meter
from bipolar._init.report import LSUVError
from bipolar._init.solver import Scaling, UnsolvableError, solve
from bipolar._init.weights import WeightSetter


class ConstantInputError(LSUVError):
    """The input of a layer is the same everywhere, so that its output is nothing but the bias."""


@dataclass(frozen=True)
class Settings:
    """The arguments of :func:`~bipolar.lsuv_`, a meter and a setter of weights."""

    meter: Meter
    weights: WeightSetter
    #: whether to measure after an activation that directly follows a layer
    after_activation: bool
    #: whether to start from orthogonal weights
    orthogonal: bool
    #: whether to bring all channels of an output to the same size first
    per_channel: bool
    #: whether to set biases such that the inputs of activations have mean zero
    centre: bool
    tol: float
    max_iter: int

    @property
    def target(self) -> str:
        """The statistic in words."""
        return self.meter.target.replace("_", " ")

    def solve(self, name: str, statistic: Callable[[float], float], linear: Tensor, input: Tensor) -> Scaling:
        """The scale of a layer; an error names it and the reason."""
        if self.meter(linear) == 0:
            if self.meter.everywhere(bool((input == input.flatten()[0]).all()), linear.device):
                raise ConstantInputError(
                    f"layer {name!r}: its output has no {self.target}, because its input has none; "
                    "the samples of the batch have to differ"
                )
            raise LSUVError(
                f"layer {name!r} is dead: its weight makes the same of every input; give it another one, or exclude it"
            )
        try:
            return solve(statistic, self.tol, self.max_iter)
        except UnsolvableError as error:
            if not bool(torch.isfinite(input).all()):
                raise LSUVError(f"layer {name!r}: there is NaN or infinity in its input") from None
            raise LSUVError(f"layer {name!r}: its {self.target} {error}") from None


def scaled(linear: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    """An output with its weight at another scale."""
    return linear * scale if bias is None else linear * scale + bias
