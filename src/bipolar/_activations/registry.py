"""Activations by name: for configuration files, command lines, and models that take their activation as a string."""

import difflib
from collections.abc import Callable
from typing import Any

from torch import nn

from bipolar._activations.catalogue import ENTRIES
from bipolar._activations.channelwise import ChannelActivation
from bipolar._activations.modules import Bipolar

#: The names that users have registered; they go before those of the catalogue.
_registered: dict[str, Callable[..., nn.Module]] = {}


def _factories() -> dict[str, Callable[..., nn.Module]]:
    entries = [entry for entry in ENTRIES.values() if entry.has_defaults]
    plain = {entry.name: entry.module for entry in entries}
    bipolar = {entry.bipolar_name: entry.bipolar for entry in entries if entry.relu_family()}
    return {**plain, **bipolar, **_registered}


def get_activation(name: str, **kwargs: Any) -> nn.Module:
    """A new activation module, by name.

    Args:
        name: one of :func:`list_activations`, in upper or lower case
        **kwargs: handed to the module, such as ``alpha`` or ``dim``

    Examples::

        >>> import bipolar
        >>> bipolar.get_activation("belu", alpha=0.5, dim=-1)
        BELU(alpha=0.5, dim=-1)
    """
    if not isinstance(name, str):
        raise TypeError(f"name: expected a string, got {name!r}")
    factories = _factories()
    factory = factories.get(name.lower())
    if factory is None:
        close = difflib.get_close_matches(name.lower(), factories, n=3, cutoff=0.5)
        hint = (
            f"did you mean {' or '.join(map(repr, close))}?" if close else f"known are {', '.join(list_activations())}"
        )
        raise ValueError(f"name: no activation is called {name!r}; {hint}")
    activation = factory(**kwargs)
    if not isinstance(activation, nn.Module):
        raise TypeError(f"name: the factory registered as {name!r} made {activation!r}, not a module")
    return activation


def register_activation(name: str, factory: Callable[..., nn.Module], *, overwrite: bool = False) -> None:
    """Makes an activation known to :func:`get_activation` under a name.

    Args:
        name: the name, in upper or lower case
        factory: a module class, or any callable that returns a module
        overwrite: replace an activation that already has this name. Default: ``False``, which raises an error

    Examples::

        >>> import bipolar
        >>> from torch import nn
        >>> bipolar.register_activation("bsigmoid", lambda **kwargs: bipolar.Bipolar(nn.Sigmoid(), **kwargs))
        >>> bipolar.get_activation("bsigmoid", dim=-1)
        Bipolar(
          dim=-1
          (f): Sigmoid()
        )
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"name: expected a string that is not empty, got {name!r}")
    if not callable(factory):
        raise TypeError(f"factory: expected a module class or a callable that returns a module, got {factory!r}")
    if name.lower() in _factories() and not overwrite:
        raise ValueError(f"name: {name!r} is taken; use overwrite=True to replace it")
    _registered[name.lower()] = factory


def list_activations() -> list[str]:
    """The names that :func:`get_activation` knows, sorted.

    Examples::

        >>> import bipolar
        >>> [name for name in bipolar.list_activations() if "elu" in name and "relu" not in name]
        ['bcelu', 'belu', 'bgelu', 'bselu', 'celu', 'elu', 'gelu', 'selu']
    """
    return sorted(_factories())


def name_of(activation: nn.Module) -> str | None:
    """The name under which an activation with its default options is known, if it is one; else None.

    Channel dimension and pattern do not count: they are given beside the name.
    """
    for name, factory in _factories().items():
        if factory is type(activation):
            default = factory()
            options = {key: getattr(activation, key, None) for key in getattr(default, "shown", ())}
            if isinstance(default, ChannelActivation):
                same = all(getattr(default, key) == value for key, value in options.items())
            else:
                same = repr(default) == repr(activation)
            return name if same else None
    if type(activation) is Bipolar and isinstance(activation.f, nn.Module):
        entry = ENTRIES.get(name_of(activation.f) or "")
        if entry is not None and entry.bipolar_module is None and entry.relu_family():
            return entry.bipolar_name
    return None
