"""Activations recognised in calls and modules, to be made anew as plain or bipolar modules."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from bipolar._activations import catalogue
from bipolar._activations.channelwise import ChannelActivation
from bipolar._activations.kernels import Kernel
from bipolar._activations.modules import Bipolar
from bipolar._activations.patterns import Pattern
from bipolar._activations.relatives import CReLU


class Elementwise(nn.Module):
    """A function as a module."""

    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.f = f

    def forward(self, input: Tensor) -> Tensor:
        return self.f(input)

    def extra_repr(self) -> str:
        return getattr(self.f, "__name__", repr(self.f))


@dataclass(frozen=True)
class RecognisedActivation:
    """An activation with its options: plain, or bipolar with its channel dimension and pattern.

    ``name`` is that of the plain function. ``f`` is set for a :class:`~bipolar.Bipolar`: the function inside.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    channels: tuple[int, Pattern] | None = None
    f: Callable[[Tensor], Tensor] | None = None

    @property
    def inplace(self) -> bool:
        return bool(self.options.get("inplace"))

    def plain(self) -> nn.Module:
        """The plain version, as a module."""
        if self.f is not None:
            return self.f if isinstance(self.f, nn.Module) else Elementwise(self.f)
        make = catalogue.ENTRIES[self.name].module
        if self.slopes:
            return _with_weight(make(self.slopes, device="meta"), self.options["weight"])
        return make(**self.options)

    def bipolar(self, dim: int, pattern: Pattern, inplace: bool | None = None) -> nn.Module:
        """The bipolar version, as a module; ``inplace`` in place of its own."""
        if self.f is not None:
            return Bipolar(self.f, dim, pattern)
        make = catalogue.ENTRIES[self.name].bipolar
        if self.slopes:
            made = make(self.slopes, device="meta", dim=dim, pattern=pattern)
            return _with_weight(made, self.options["weight"])
        options = dict(self.options)
        if inplace is not None and "inplace" in options:
            options["inplace"] = inplace
        return make(**options, dim=dim, pattern=pattern)

    def out_of_place(self) -> "RecognisedActivation":
        return replace(self, options=self.options | {"inplace": False})

    @property
    def plain_class(self) -> type[nn.Module] | None:
        entry = catalogue.ENTRIES.get(self.name)
        return None if entry is None else entry.module

    @property
    def slopes(self) -> int:
        """The number of its own parameters; with more than one, a plain PReLU has its channels in dimension 1."""
        return int(self.options["weight"].numel()) if "weight" in self.options else 0

    @property
    def has_state(self) -> bool:
        """Whether a module of it has a weight or a mode, which a call of the function is given from outside."""
        entry = catalogue.ENTRIES.get(self.name)
        return entry is not None and not {"weight", "training"}.isdisjoint(entry.arguments)


def recognise_call(function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RecognisedActivation | None:
    """The activation that a function of torch or of this library computes, if it has a bipolar version."""
    if function == "bipolar":
        values = dict(zip(("f", "input", "dim", "pattern"), args, strict=False)) | kwargs
        f = values["f"]
        name = getattr(f, "__name__", type(f).__name__)
        return RecognisedActivation(name, {}, (values.get("dim", 1), values.get("pattern", "alternate")), f)
    entry, channels = catalogue.of_plain_name(function), None
    if entry is None:
        entry = catalogue.of_bipolar_name(function)
        channels = (kwargs.get("dim", 1), kwargs.get("pattern", "alternate"))
    if entry is None:
        return None
    options = entry.options_of_call(args, kwargs)
    options.pop("training", None)
    if function.endswith("_"):
        options["inplace"] = True
    return RecognisedActivation(entry.name, options, channels) if entry.relu_family(**options) else None


def recognise_module(module: nn.Module) -> RecognisedActivation | None:
    """The activation that a module is, if it has a bipolar version; classes derived from others' are unknown."""
    if isinstance(module, Bipolar):
        return RecognisedActivation(type(module.f).__name__, {}, (module.dim, module.pattern), module.f)
    entry = catalogue.of_class(type(module))
    if entry is None or not entry.relu_family(**(options := entry.options_of_module(module))):
        return None
    channels = (module.dim, module.pattern) if isinstance(module, ChannelActivation) else None
    return RecognisedActivation(entry.name, options, channels)


def kernel_of(activation: Any) -> Kernel | None:
    """The plain kernel of an activation, plain or bipolar; None if its output does not tell the derivative."""
    if not isinstance(activation, nn.Module):
        entry, options = catalogue.of_function(activation), {}
        if entry is not None and activation is entry.bipolar_function:  # its signs are not seen from outside
            return None
    elif activation._forward_hooks or activation._forward_pre_hooks:
        return None
    else:
        entry = catalogue.of_class(type(activation))
        options = {} if entry is None else entry.options_of_module(activation)
    kernel = None if entry is None or entry.kernel is None else entry.kernel(**options)
    return kernel if kernel is not None and kernel.output_suffices else None


def is_elementwise(module: nn.Module) -> bool:
    """Whether a module is an activation, or derived from one, that keeps the shape of its input."""
    entries = (catalogue.of_class(kind) for kind in type(module).__mro__)
    known = any(entry is not None and entry.function is not None for entry in entries)
    return (known or isinstance(module, ChannelActivation)) and not isinstance(module, CReLU)


def resembles_activation(class_name: str) -> bool:
    """Whether a class is named like an activation of the ReLU family."""
    names = [entry.name.replace("_", "") for entry in catalogue.ENTRIES.values() if entry.relu_family()]
    return any(name in class_name.lower() for name in (*names, "swish", "activation"))


def _with_weight(module: nn.Module, weight: Tensor) -> nn.Module:
    module.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight)
    return module
