"""State of an optimiser, carried over to a model with flipped weights."""

from typing import Any, TypeAlias

import torch
from torch import Tensor

#: For each parameter its new one, and the signs of its flip, if there was one.
Partners: TypeAlias = dict[Tensor, tuple[Tensor, Tensor | None]]

#: Entries that change their sign with the gradient or the weight; and entries that do not.
_SIGNED = frozenset(("momentum_buffer", "exp_avg", "grad_avg", "prev", "ax"))
_UNSIGNED = frozenset(("exp_avg_sq", "max_exp_avg_sq", "square_avg", "acc_delta", "sum", "exp_inf", "step_size")) | {
    *("step", "row_var", "col_var", "variance", "mu_product", "eta", "mu")
}


def carry_over(optimizer: torch.optim.Optimizer, partners: Partners) -> None:
    """Hands an optimiser over from parameters to their partners, with its state flipped alike."""
    own = [p for group in optimizer.param_groups for p in group["params"]]
    if any(p not in partners for p in own):
        raise ValueError("optimizer: it has parameters that are not the model's")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("optimizer: the history of LBFGS is not kept by parameter, and cannot be carried over")
    states: dict[Tensor, dict[str, Any]] = {}
    for p in own:
        if p in optimizer.state:
            target, sign = partners[p]
            states[target] = {
                key: value if sign is None else _flipped_entry(optimizer, key, value, sign)
                for key, value in optimizer.state[p].items()
            }
    for group in optimizer.param_groups:
        group["params"] = [partners[p][0] for p in group["params"]]
    optimizer.state.clear()
    optimizer.state.update(states)


def _flipped_entry(optimizer: torch.optim.Optimizer, key: str, value: Any, sign: Tensor) -> Any:
    if key in _UNSIGNED or value is None or isinstance(value, (bool, int, float)):
        return value
    if key in _SIGNED and isinstance(value, Tensor):
        return value * sign.to(value)
    raise ValueError(
        f"optimizer: whether {key!r} of {type(optimizer).__name__} changes its sign with the weights is not known; "
        f"known are {', '.join(sorted(_SIGNED | _UNSIGNED))}"
    )
