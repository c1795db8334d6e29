"""Learned gains of pinned filters: each norm follows its own gradient, apart from the direction of its filter."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

#: Adam's decay rates and its small number, as those of :class:`~bipolar.optim.Muon`.
BETAS, EPS = (0.9, 0.99), 1e-8
#: A gain never falls below this, so that a filter does not vanish or change its sign.
LEAST = 0.01


class Gains:
    r"""A gain for each norm of some weights, moved by Adam.

    With :math:`w_i = g_i \, n_i \, u_i`, where :math:`u_i` is the direction of a filter and :math:`n_i` its norm at the
    start, the gradient of the gain is

    .. math::
        \frac{\partial L}{\partial g_i} = \frac{\langle \partial L / \partial w_i, w_i \rangle}{g_i},

    as in `weight normalisation <https://arxiv.org/abs/1602.07868>`_ (Salimans & Kingma, 2016), but within the
    optimiser: the model has no more parameters than before.

    Args:
        norms: the norms of the start, one tensor for each weight
        rate: the rate of the gains, as a share of that of their weight
    """

    def __init__(self, norms: Sequence[Tensor], rate: float) -> None:
        self.rate, self.step = rate, 0
        self.values = [torch.ones_like(n) for n in norms]
        self.means, self.squares = ([torch.zeros_like(n) for n in norms] for _ in range(2))
        self._gradients: list[Tensor | None] = [None for _ in norms]

    def look(
        self,
        weights: Sequence[nn.Parameter],
        dims: Sequence[tuple[int, ...]],
        scale: Tensor | None = None,
        skip: bool = False,
    ) -> None:
        """Takes the gradients, before a step changes the weights; ``scale`` is the factor that they still have."""
        factor: Tensor | float = 1.0 if scale is None else scale
        self._gradients = [
            None if skip or w.grad is None else (w.grad * w.detach()).sum(d, keepdim=True, dtype=g.dtype) / (g * factor)
            for w, d, g in zip(weights, dims, self.values, strict=True)
        ]

    def move(self, rates: Sequence[float]) -> None:
        """A step of Adam; ``rates`` are those of the weights."""
        if all(gradient is None for gradient in self._gradients):
            return
        self.step += 1
        corrections = [1 - beta**self.step for beta in BETAS]
        for i, gradient in enumerate(self._gradients):
            if gradient is not None:
                mean = self.means[i].lerp_(gradient, 1 - BETAS[0])
                square = self.squares[i].lerp_(gradient.square(), 1 - BETAS[1])
                update = (mean / corrections[0]) / ((square / corrections[1]).sqrt_() + EPS)
                self.values[i].sub_(update, alpha=self.rate * rates[i]).clamp_min_(LEAST)

    def state_dict(self, names: Sequence[str]) -> dict[str, Any]:
        parts = zip(names, self.values, self.means, self.squares, strict=True)
        return {"step": self.step, "gains": {name: list(values) for name, *values in parts}}

    def load_state_dict(self, names: Sequence[str], state: dict[str, Any]) -> None:
        for name, gain in zip(names, self.values, strict=True):
            if [part.shape for part in state["gains"].get(name, ())] != [gain.shape] * 3:
                raise ValueError(f"state_dict: it has no gains for {name!r}; pin the same weights as when it was saved")
        self.step = state["step"]
        for i, name in enumerate(names):
            parts = [part.detach().clone().to(self.values[i]) for part in state["gains"][name]]
            self.values[i], self.means[i], self.squares[i] = parts
