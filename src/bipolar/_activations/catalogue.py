"""The catalogue: every activation that the library knows, one entry each.

Names, conversion, LSUV, the probe, the recurrent stack, sign rules and folding all derive their lists from it. A new
activation is one more entry in the table below.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar.functional as F
from bipolar._activations import kernels, modules, relatives
from bipolar._activations.channelwise import ChannelActivation
from bipolar._activations.kernels import Kernel
from bipolar._activations.modules import Bipolar
from bipolar._activations.patterns import Pattern


def always(**_: Any) -> bool:
    return True


def never(**_: Any) -> bool:
    return False


def at_zero(**_: Any) -> tuple[float, ...]:
    return (0.0,)


@dataclass(frozen=True)
class CatalogueEntry:
    """One activation, plain and bipolar.

    Facts that may depend on the options, such as the bounds of a hardtanh, are functions of them by keyword.
    """

    #: the name of the plain function; the bipolar one has a "b" before it
    name: str
    module: type[nn.Module]
    #: Functions that are not torch's need :func:`bipolar.functional.overridable`, to be seen as one call. An identity
    #: has none.
    function: Callable[..., Tensor] | None
    #: the function's arguments after the input; the module has attributes of these names
    arguments: tuple[str, ...] = ()
    #: None: :class:`~bipolar.Bipolar` around the plain module
    bipolar_module: type[ChannelActivation] | None = None
    bipolar_function: Callable[..., Tensor] | None = None
    #: whether it belongs to the ReLU family, which :func:`~bipolar.convert` replaces by bipolar versions
    relu_family: Callable[..., bool] = never
    #: whether f(-x) = -f(x)
    odd: Callable[..., bool] = never
    #: whether its output can have unit variance: not if it is bounded closely
    unit_variance: Callable[..., bool] = always
    #: where f or its derivative jumps, whatever the sign
    kinks: Callable[..., tuple[float, ...]] = at_zero
    #: the plain kernel for the fast paths of :class:`~bipolar.StackedRNN`, from the options
    kernel: Callable[..., Kernel] | None = None
    #: whether the module has a default for all its options, so that a name is enough to make one
    has_defaults: bool = True

    @property
    def bipolar_name(self) -> str:
        return f"b{self.name}"

    @property
    def bipolar(self) -> Callable[..., nn.Module]:
        """Makes the bipolar module from the options, ``dim`` and ``pattern``."""
        return self.bipolar_module or self._wrapped

    def _wrapped(self, *, dim: int = 1, pattern: Pattern = "alternate", **options: Any) -> Bipolar:
        if "inplace" in self.arguments:  # Bipolar calls it on a copy
            options["inplace"] = False
        return Bipolar(self.module(**options), dim, pattern)

    def options_of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The options in a call of the function, plain or bipolar, by name."""
        options = dict(zip(self.arguments, args[1:], strict=False))
        return options | {name: value for name, value in kwargs.items() if name in self.arguments}

    def options_of_module(self, module: nn.Module) -> dict[str, Any]:
        """The options of a module of the class, plain or bipolar, by name."""
        return {name: getattr(module, name) for name in self.arguments if name != "training"}


#: All entries by name.
ENTRIES: dict[str, CatalogueEntry] = {}
_BY_CLASS: dict[type, CatalogueEntry] = {}
_BY_FUNCTION: dict[Any, CatalogueEntry] = {}


def add(entry: CatalogueEntry) -> None:
    """Puts an entry into the catalogue."""
    ENTRIES[entry.name] = entry
    for kind in (entry.module, entry.bipolar_module):
        if kind is not None:
            _BY_CLASS[kind] = entry
    # torch has many functions under the same name elsewhere, too, and in place
    variants = [getattr(home, name, None) for home in (tF, torch, Tensor) for name in (entry.name, f"{entry.name}_")]
    for function in (entry.function, entry.bipolar_function, *variants):
        if function is not None:
            _BY_FUNCTION[function] = entry


def of_class(kind: type) -> CatalogueEntry | None:
    """The entry whose plain or bipolar module has exactly this class."""
    return _BY_CLASS.get(kind)


def of_function(function: Any) -> CatalogueEntry | None:
    """The entry of a function, plain or bipolar, or of a method of tensors."""
    return _BY_FUNCTION.get(function) if isinstance(function, Hashable) else None


def of_plain_name(name: str) -> CatalogueEntry | None:
    """The entry of a plain function by its name, with an underscore at the end if it works in place."""
    return ENTRIES.get(name.removesuffix("_"))


def of_bipolar_name(name: str) -> CatalogueEntry | None:
    """The entry of a bipolar function by its name."""
    entry = ENTRIES.get(name[1:]) if name.startswith("b") else None
    return None if entry is None or entry.bipolar_function is None else entry


def _is_symmetric(min_val: float = -1.0, max_val: float = 1.0, **_: Any) -> bool:
    return min_val == -max_val


def _starts_at_zero(min_val: float = -1.0, **_: Any) -> bool:
    return min_val == 0


def _at_lambda(lambd: float = 0.5, **_: Any) -> tuple[float, ...]:
    return (lambd,)


def _is_wide(min_val: float = -1.0, max_val: float = 1.0, **_: Any) -> bool:
    return max_val - min_val > 2  # the largest variance between two bounds is a quarter of their squared distance


for _entry in (
    CatalogueEntry(
        "celu",
        nn.CELU,
        tF.celu,
        ("alpha", "inplace"),
        modules.BCELU,
        F.bcelu,
        relu_family=always,
        kernel=lambda alpha=1.0, **_: kernels.fast_elu(alpha, 1.0, 1.0 / alpha),
    ),
    CatalogueEntry(
        "elu",
        nn.ELU,
        tF.elu,
        ("alpha", "inplace"),
        modules.BELU,
        F.belu,
        relu_family=always,
        kernel=lambda alpha=1.0, **_: kernels.fast_elu(alpha),
    ),
    CatalogueEntry("gelu", nn.GELU, tF.gelu, ("approximate",), modules.BGELU, F.bgelu, relu_family=always),
    CatalogueEntry(
        "hardswish", nn.Hardswish, tF.hardswish, ("inplace",), relu_family=always, kinks=lambda **_: (0.0, 3.0)
    ),
    CatalogueEntry(
        "leaky_relu",
        nn.LeakyReLU,
        tF.leaky_relu,
        ("negative_slope", "inplace"),
        modules.BLeakyReLU,
        F.bleaky_relu,
        relu_family=always,
        kernel=lambda negative_slope=0.01, **_: kernels.leaky_relu(negative_slope),
    ),
    CatalogueEntry("mish", nn.Mish, tF.mish, ("inplace",), relu_family=always),
    CatalogueEntry("prelu", nn.PReLU, tF.prelu, ("weight",), modules.BPReLU, F.bprelu, relu_family=always),
    CatalogueEntry(
        "relu",
        nn.ReLU,
        tF.relu,
        ("inplace",),
        modules.BReLU,
        F.brelu,
        relu_family=always,
        kernel=lambda **_: kernels.relu(),
    ),
    CatalogueEntry("relu6", nn.ReLU6, tF.relu6, ("inplace",), relu_family=always, kinks=lambda **_: (0.0, 6.0)),
    CatalogueEntry(
        "rrelu",
        nn.RReLU,
        tF.rrelu,
        ("lower", "upper", "training", "inplace"),
        modules.BRReLU,
        F.brrelu,
        relu_family=always,
    ),
    CatalogueEntry(
        "selu",
        nn.SELU,
        tF.selu,
        ("inplace",),
        modules.BSELU,
        F.bselu,
        relu_family=always,
        kernel=lambda **_: kernels.fast_elu(F.SELU_ALPHA, F.SELU_SCALE),
    ),
    CatalogueEntry("silu", nn.SiLU, tF.silu, ("inplace",), modules.BSiLU, F.bsilu, relu_family=always),
    CatalogueEntry(
        "softplus", nn.Softplus, tF.softplus, ("beta", "threshold"), modules.BSoftplus, F.bsoftplus, relu_family=always
    ),
    # of the family, odd or neither, depending on the bounds
    CatalogueEntry(
        "hardtanh",
        nn.Hardtanh,
        tF.hardtanh,
        ("min_val", "max_val", "inplace"),
        relu_family=_starts_at_zero,
        odd=_is_symmetric,
        unit_variance=_is_wide,
        kinks=lambda min_val=-1.0, max_val=1.0, **_: (min_val, max_val),
    ),
    # odd: the bipolar version is the same function
    CatalogueEntry("hardshrink", nn.Hardshrink, tF.hardshrink, ("lambd",), odd=always, kinks=_at_lambda),
    CatalogueEntry("identity", nn.Identity, None, odd=always),
    CatalogueEntry("softshrink", nn.Softshrink, tF.softshrink, ("lambd",), odd=always, kinks=_at_lambda),
    CatalogueEntry("softsign", nn.Softsign, tF.softsign, odd=always, unit_variance=never),
    CatalogueEntry("tanh", nn.Tanh, torch.tanh, odd=always, unit_variance=never, kernel=lambda **_: kernels.tanh()),
    CatalogueEntry("tanhshrink", nn.Tanhshrink, tF.tanhshrink, odd=always),
    # neither odd nor of the family
    CatalogueEntry(
        "hardsigmoid", nn.Hardsigmoid, tF.hardsigmoid, ("inplace",), unit_variance=never, kinks=lambda **_: (3.0,)
    ),
    CatalogueEntry("logsigmoid", nn.LogSigmoid, tF.logsigmoid),
    CatalogueEntry("sigmoid", nn.Sigmoid, torch.sigmoid, unit_variance=never),
    CatalogueEntry(
        "threshold",
        nn.Threshold,
        tF.threshold,
        ("threshold", "value", "inplace"),
        kinks=lambda threshold=0.0, **_: (threshold,),
        has_defaults=False,
    ),
    # relatives, which mix channels
    CatalogueEntry("crelu", relatives.CReLU, F.crelu, ("f",)),
    CatalogueEntry("oplu", relatives.OPLU, F.oplu),
):
    add(_entry)
