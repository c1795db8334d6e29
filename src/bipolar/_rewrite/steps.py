"""Steps of a conversion, as plain data that a file can store."""

from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from bipolar._activations import catalogue
from bipolar._activations.channelwise import ChannelActivation
from bipolar._activations.modules import Bipolar

#: What was done to which module of which class, and whatever is needed to do it again.
Step: TypeAlias = dict[str, Any]


def step(what: str, name: str, module: nn.Module, **values: Any) -> Step:
    return {"step": what, "module": name, "was": type(module).__name__, **values}


def stored(activation: nn.Module, place: nn.Module | None = None) -> Step:
    """An activation as data; ``place`` is the module that it takes the place of, and may hold."""
    held = activation.f if isinstance(activation, Bipolar) else activation
    entry = catalogue.of_class(type(held))
    channels = {}
    if isinstance(activation, ChannelActivation):
        channels = {"dim": activation.dim, "pattern": activation.pattern}
    if held is place and held is not activation:
        return {"name": None, **channels}
    if entry is None or (isinstance(activation, ChannelActivation) and entry.bipolar is None):
        return {"custom": type(activation).__name__}
    options = entry.options_of_module(cast(nn.Module, held))
    slopes = options.pop("weight", None)
    if not all(isinstance(value, str | int | float | bool | None) for value in options.values()):
        return {"custom": type(activation).__name__}
    if isinstance(slopes, Tensor):
        options["num_parameters"] = slopes.numel()
    return {"name": entry.name, "options": options, **channels}


def restored_activation(data: Step, place: nn.Module) -> nn.Module | None:
    """The activation that was stored, for the place of a module; None for one that cannot be stored."""
    if "custom" in data:
        return None
    channels = {key: data[key] for key in ("dim", "pattern") if key in data}
    if data["name"] is None:
        return Bipolar(place, **channels)
    entry = catalogue.ENTRIES.get(data["name"])
    if entry is None:
        raise ValueError(f"like: no activation is called {data['name']!r} here")
    make = entry.bipolar if channels else entry.module
    made = make(**data["options"], **channels)
    if "weight" in entry.arguments and catalogue.of_class(type(place)) is entry:
        made.weight = place.weight
    like = next(place.parameters(), torch.empty(()))
    return made.to(device=like.device)
