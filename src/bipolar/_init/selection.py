"""Selection of the layers that LSUV initialises, and the reasons to leave one of them alone."""

import fnmatch
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, cast

from torch import nn
from torch.nn.utils import parametrize

from bipolar._init import recurrent
from bipolar._init.channels import is_transposed_linear
from bipolar._rnn.stack import StackedRNN

RECURRENT = (*recurrent.RECURRENT_LAYERS, StackedRNN)
#: Layers with several weights, which LSUV scales before they run.
COMPOSED = (*RECURRENT, nn.MultiheadAttention)

LAYERS = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    *COMPOSED,
)

Selector: TypeAlias = str | nn.Module | type[nn.Module] | Callable[[str, nn.Module], bool]


def layers_of(model: nn.Module) -> dict[nn.Module, str]:
    """The layers with their names; a model that is itself a layer is named by its type."""
    return {
        module: name or type(module).__name__
        for name, module in model.named_modules()
        if isinstance(module, LAYERS) or is_transposed_linear(module)
    }


def selected(
    layers: dict[nn.Module, str],
    include: Selector | Iterable[Selector] | None,
    exclude: Selector | Iterable[Selector] | None,
) -> dict[nn.Module, str]:
    """The layers that match ``include`` and do not match ``exclude``; None stands for all and for none."""
    wanted = set(layers) if include is None else _matching("include", layers, include)
    unwanted = set() if exclude is None else _matching("exclude", layers, exclude)
    return {layer: name for layer, name in layers.items() if layer in wanted - unwanted}


def _matching(argument: str, layers: dict[nn.Module, str], selectors: Selector | Iterable[Selector]) -> set[nn.Module]:
    several = [selectors] if isinstance(selectors, str | nn.Module) or callable(selectors) else list(selectors)
    found: set[nn.Module] = set()
    for selector in several:
        matches = {layer for layer, name in layers.items() if _matches(selector, name, layer)}
        if not matches:
            raise ValueError(f"{argument}: {selector!r} matches none of the layers {', '.join(layers.values())}")
        found |= matches
    return found


def _matches(selector: Selector, name: str, layer: nn.Module) -> bool:
    if isinstance(selector, str):
        return fnmatch.fnmatchcase(name, selector)
    if isinstance(selector, type):
        return isinstance(layer, selector)
    if isinstance(selector, nn.Module):
        return layer is selector
    return bool(selector(name, layer))


def left_alone(model: nn.Module, layers: dict[nn.Module, str]) -> dict[nn.Module, str]:
    """The layers whose weights LSUV must not change, with the reason."""
    owners: dict[int, list[str]] = defaultdict(list)
    for name, module in model.named_modules():
        if module not in layers:
            for parameter in module._parameters.values():
                owners[id(parameter)].append(name)
    notes: dict[nn.Module, str] = {}
    for layer in layers:
        for name in _weight_names(layer):
            note = _reason(layer, name, owners)
            if note:
                notes[layer] = note
    return notes


def _weight_names(layer: nn.Module) -> Iterator[str]:
    """The names of the weights, parametrised ones last."""
    if not isinstance(layer, COMPOSED):
        yield "weight"
        return
    yield from (name for name, weight in layer._parameters.items() if "weight" in name and weight is not None)
    if parametrize.is_parametrized(layer):
        yield from cast(nn.ModuleDict, layer.parametrizations)


def _reason(layer: nn.Module, name: str, owners: dict[int, list[str]]) -> str:
    """The reason why a weight has to stay as it is; empty if there is none."""
    if parametrize.is_parametrized(layer, name):
        if isinstance(layer, COMPOSED):
            return "its weights are parametrised"
        originals = cast(nn.ModuleDict, layer.parametrizations)[name].parameters()
        return "" if any(original.requires_grad for original in originals) else "frozen"
    weight = layer._parameters.get(name)
    if weight is None:
        return f"its {name} is not a parameter"
    if not weight.requires_grad:
        return "frozen"
    return f"tied to {owners[id(weight)][0]!r}" if id(weight) in owners else ""
