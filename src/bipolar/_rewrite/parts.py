"""Parts of a model, replaced by others."""

import copy

from torch import nn

from bipolar._activations.modules import Bipolar
from bipolar._activations.recognition import twin_of_module
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
    """The model with a module replaced, wherever it stands; the hooks on it stay."""
    new.train(old.training)
    for name in _HOOKS:
        getattr(new, name).update(getattr(old, name))
    if old is model:
        return new
    for parent in model.modules():
        for name, child in parent._modules.items():
            if child is old:
                parent._modules[name] = new
    return model


def set_activation(rnn: StackedRNN, activation: nn.Module) -> None:
    """Gives a stack another activation."""
    rnn.activation, rnn.nonlinearity = activation.train(rnn.training), name_of(activation)
    rnn.pattern = getattr(activation, "pattern", rnn.pattern)


def remember_activation(model: nn.Module) -> None:
    """Has the configuration that a model is saved with tell the activation that it has now, where there is one."""
    config = getattr(model, "_hub_mixin_config", None)
    inner = {id(module.f) for module in model.modules() if isinstance(module, Bipolar)}
    names = {name_of(m) for m in model.modules() if twin_of_module(m) is not None and id(m) not in inner}
    for key in ("activation", "nonlinearity"):
        if isinstance(config, dict) and key in config and len(names) == 1:
            config[key] = names.pop()
