"""Activations that have a plain and a bipolar version: recognised in a call or a module, and made anew as the other."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from bipolar._activations import modules
from bipolar._activations.channelwise import ChannelActivation
from bipolar._activations.modules import Bipolar
from bipolar._activations.patterns import Pattern

#: The arguments after the input of functions of the ReLU family; those of the bipolar ones are the same.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "celu": ("alpha", "inplace"),
    "elu": ("alpha", "inplace"),
    "gelu": ("approximate",),
    "hardswish": ("inplace",),
    "hardtanh": ("min_val", "max_val", "inplace"),
    "leaky_relu": ("negative_slope", "inplace"),
    "mish": ("inplace",),
    "prelu": ("weight",),
    "relu": ("inplace",),
    "relu6": ("inplace",),
    "rrelu": ("lower", "upper", "training", "inplace"),
    "selu": ("inplace",),
    "silu": ("inplace",),
    "softplus": ("beta", "threshold"),
}
_PLAIN: dict[str, type[nn.Module]] = {
    "celu": nn.CELU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "hardswish": nn.Hardswish,
    "hardtanh": nn.Hardtanh,
    "leaky_relu": nn.LeakyReLU,
    "mish": nn.Mish,
    "prelu": nn.PReLU,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "rrelu": nn.RReLU,
    "selu": nn.SELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
}
_BIPOLAR: dict[str, type[ChannelActivation]] = {
    "celu": modules.BCELU,
    "elu": modules.BELU,
    "gelu": modules.BGELU,
    "leaky_relu": modules.BLeakyReLU,
    "prelu": modules.BPReLU,
    "relu": modules.BReLU,
    "rrelu": modules.BRReLU,
    "selu": modules.BSELU,
    "silu": modules.BSiLU,
    "softplus": modules.BSoftplus,
}


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
class Twin:
    """An activation: its name as a plain function, its options, and, if it is bipolar, its channels and pattern.

    ``f`` is the function that a :class:`~bipolar.Bipolar` was made of.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    channels: tuple[int, Pattern] | None = None
    f: Callable[[Tensor], Tensor] | None = None

    @property
    def inplace(self) -> bool:
        return bool(self.options.get("inplace"))

    @property
    def label(self) -> str:
        return self.name if self.channels is None else f"bipolar {self.name}"

    def plain(self) -> nn.Module:
        """The plain version, as a module."""
        if self.f is not None:
            return self.f if isinstance(self.f, nn.Module) else Elementwise(self.f)
        if self.name == "prelu":
            return _with_weight(nn.PReLU(self.options["weight"].numel(), device="meta"), self.options["weight"])
        return _PLAIN[self.name](**self.options)

    def bipolar(self, dim: int, pattern: Pattern, inplace: bool | None = None) -> nn.Module:
        """The bipolar version, as a module; ``inplace`` in place of its own."""
        options = dict(self.options)
        if inplace is not None and "inplace" in options:
            options["inplace"] = inplace
        if self.name == "prelu":
            weight = options["weight"]
            made = modules.BPReLU(weight.numel(), device="meta", dim=dim, pattern=pattern)
            return _with_weight(made, weight)
        if self.name in _BIPOLAR:
            return _BIPOLAR[self.name](**options, dim=dim, pattern=pattern)
        return Bipolar(self.f or _PLAIN[self.name](**options | {"inplace": False}), dim, pattern)

    def out_of_place(self) -> "Twin":
        return replace(self, options=self.options | {"inplace": False})

    @property
    def plain_class(self) -> type[nn.Module] | None:
        return _PLAIN.get(self.name)

    @property
    def slopes(self) -> int:
        """How many parameters of its own it has; with more than one, a plain PReLU has its channels in dimension 1."""
        return int(self.options["weight"].numel()) if self.name == "prelu" else 0


def of_call(function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Twin | None:
    """What a call of a function of torch or of this library is, by the function's name."""
    if function == "bipolar":
        values = dict(zip(("f", "input", "dim", "pattern"), args, strict=False)) | kwargs
        f = values["f"]
        name = getattr(f, "__name__", type(f).__name__)
        return Twin(name, {}, (values.get("dim", 1), values.get("pattern", "alternate")), f)
    inplace = function.endswith("_")
    name = function.removesuffix("_")
    channels = None
    if name.removeprefix("b") in _BIPOLAR and name not in _ARGUMENTS:
        name = name.removeprefix("b")
        channels = (kwargs.get("dim", 1), kwargs.get("pattern", "alternate"))
    if name not in _ARGUMENTS:
        return None
    known = _ARGUMENTS[name]
    options = dict(zip(known, args[1:], strict=False)) | {k: v for k, v in kwargs.items() if k in known}
    options.pop("training", None)
    if inplace:
        options["inplace"] = True
    if name == "hardtanh" and options.get("min_val", -1.0) != 0:  # odd, or not of the family
        return None
    return Twin(name, options, channels)


def of_module(module: nn.Module) -> Twin | None:
    """What a module is, if its class is one of torch's or of this library's activations."""
    kind = type(module)
    if isinstance(module, Bipolar):
        return Twin(type(module.f).__name__, {}, (module.dim, module.pattern), module.f)
    for classes in (_PLAIN, _BIPOLAR):
        for name, known in classes.items():
            if kind is known:
                options = {a: getattr(module, a) for a in _ARGUMENTS[name] if a != "training" and hasattr(module, a)}
                if name == "relu6":
                    options = {"inplace": module.inplace}
                if name == "hardtanh" and options["min_val"] != 0:
                    return None
                channels = (module.dim, module.pattern) if isinstance(module, ChannelActivation) else None
                return Twin(name, options, channels)
    return None


def _with_weight(module: nn.Module, weight: Tensor) -> nn.Module:
    module.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight)
    return module
