"""Replacement of modules in copies of models."""

import copy

from torch import nn

from bipolar._activations.registry import name_of
from bipolar._rnn import StackedRNN

_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


def copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise ValueError(
            f"model: {type(model).__name__} cannot be copied ({error}); a weight that is computed before each call, as "
            "by pruning or the older weight_norm, has to become a parameter first"
        ) from error


def replaced(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """The model with one module in place of another, wherever it occurs; the new one gets the hooks of the old."""
    new.train(old.training)
    holds_old = any(module is old for module in new.modules())
    for name in _HOOKS:
        getattr(new, name).update(getattr(old, name))
        if holds_old:
            getattr(old, name).clear()
    if old is model:
        return new
    for parent in list(model.modules()):  # not those of the new one, which may hold the old
        for name, child in parent._modules.items():
            if child is old:
                parent._modules[name] = new
    return model


def set_activation(rnn: StackedRNN, activation: nn.Module) -> None:
    """Sets the activation of a stack, with the name and pattern that the stack shows."""
    rnn.activation, rnn.nonlinearity = activation.train(rnn.training), name_of(activation)
    rnn.pattern = getattr(activation, "pattern", rnn.pattern)
