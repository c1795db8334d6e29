"""A running average of a model's weights, to be evaluated in their place."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

#: The weights that count: those of the last step, or their average.
Weights: TypeAlias = Literal["raw", "averaged"]


class Average:
    r"""An exponential moving average of weights, whose horizon is a share of the steps so far.

    After step :math:`t`, counted from 1,

    .. math:: \bar w_t = \bar w_{t-1} + \frac{w_t - \bar w_{t-1}}{\max(1, ct)},

    so that :math:`c = 1` is the mean of all steps, and a smaller share forgets the start: the weight of step
    :math:`s` grows like :math:`s^{1/c - 1}` (polynomial-decay averaging, Shamir and Zhang, 2013,
    https://arxiv.org/abs/1212.1824). It does not depend on the length of the run, which may become longer.

    The buffers of the model are averaged likewise, such as the statistics of batch norm; whole numbers are copied.

    Args:
        model: the model; its weights, as they are now, are the average before the first step
        share: the share of the steps so far, above 0 and 1 at most
    """

    def __init__(self, model: nn.Module, share: float) -> None:
        self.model, self.share = model, share
        self.values: dict[str, Tensor] = {name: value.clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after a step; ``step`` counts from 1."""
        averages, weights = [], []
        for name, value in self.model.state_dict().items():
            if value.is_floating_point():
                averages.append(self.values[name])
                weights.append(value)
            else:
                self.values[name].copy_(value)
        decay = 1 - 1 / max(1.0, self.share * step)
        get_ema_multi_avg_fn(decay)(averages, weights, step)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The averaged weights in the model, in place of its own, which come back afterwards."""
        raw = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.values)
        try:
            yield
        finally:
            self.model.load_state_dict(raw)

    def state_dict(self) -> dict[str, Tensor]:
        """The averaged weights, under the names of the model's own."""
        return self.values

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, value in self.values.items():
            value.copy_(state[name])
