"""The state of an optimiser, carried over to a model with flipped weights."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

#: What changes its sign with the gradient, or with the weight; and what is the same for either.
_SIGNED = frozenset(("momentum_buffer", "exp_avg", "grad_avg", "prev", "ax"))
_UNSIGNED = frozenset(
    ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "acc_delta", "sum", "exp_inf", "step_size", "row_var", "col_var")
)


def carry_over(optimizer: torch.optim.Optimizer, partners: Mapping[Tensor, tuple[Tensor, Tensor | None]]) -> None:
    """Makes an optimiser that of other parameters: for each of its own the new one, and the signs of the flip."""
    own = [p for group in optimizer.param_groups for p in group["params"]]
    if any(p not in partners for p in own):
        raise ValueError("optimizer: it has parameters that are not the model's")
    states: dict[Tensor, dict[str, Any]] = {}
    for p in own:
        if p in optimizer.state:
            target, sign = partners[p]
            states[target] = {
                key: _flipped(optimizer, key, value, p, sign) for key, value in optimizer.state[p].items()
            }
    for group in optimizer.param_groups:
        group["params"] = [partners[p][0] for p in group["params"]]
    optimizer.state.clear()
    optimizer.state.update(states)


def _flipped(optimizer: torch.optim.Optimizer, key: str, value: Any, parameter: Tensor, sign: Tensor | None) -> Any:
    if sign is None or not isinstance(value, Tensor) or key in _UNSIGNED or value.numel() == 1 != parameter.numel():
        return value
    if key in _SIGNED:
        return value * sign.to(value)
    raise ValueError(
        f"optimizer: whether {key!r} of {type(optimizer).__name__} changes its sign with the weights is not known; "
        f"known are {', '.join(sorted(_SIGNED | _UNSIGNED))}"
    )
