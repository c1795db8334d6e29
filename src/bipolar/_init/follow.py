"""Recognition of the activation after a layer, from the first torch function that takes the layer's output."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as tF
from torch import Tensor

import bipolar.functional as F
from bipolar._activations.catalogue import of_class, of_function

_DROPOUTS: frozenset[Any] = frozenset(
    (
        tF.dropout,
        tF.dropout1d,
        tF.dropout2d,
        tF.dropout3d,
        tF.alpha_dropout,
        tF.feature_alpha_dropout,
        torch.dropout,
        torch.feature_dropout,
        torch.alpha_dropout,
        torch.feature_alpha_dropout,
    )
)

_RESHAPE_NAMES = """
view reshape flatten unflatten squeeze unsqueeze transpose t swapaxes swapdims permute movedim moveaxis contiguous
"""
_RESHAPES: frozenset[Any] = frozenset(
    getattr(home, name) for home in (torch, Tensor) for name in _RESHAPE_NAMES.split() if hasattr(home, name)
)

_METADATA_NAMES = """
size dim ndimension numel nelement stride storage_offset element_size data_ptr get_device untyped_storage
is_floating_point is_complex is_signed is_contiguous is_pinned is_inference is_conj is_neg is_same_size is_shared
has_names __len__ __hash__ __repr__ __format__ requires_grad_ register_hook retain_grad
"""
_METADATA = frozenset(_METADATA_NAMES.split())
_PROPERTIES_WITH_DATA = frozenset(("T", "mT", "H", "mH", "data", "real", "imag"))


def is_metadata(func: Callable[..., Any]) -> bool:
    """Whether a torch function looks at a tensor's shape, dtype and the like, not at its values."""
    name = getattr(func, "__name__", "")
    if name == "__get__":  # a property such as Tensor.shape
        return getattr(getattr(func, "__self__", None), "__name__", "") not in _PROPERTIES_WITH_DATA
    return name in _METADATA


def is_identity(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call passes its input on unchanged: dropout that is switched off."""
    if func not in _DROPOUTS:
        return False
    training = kwargs["training"] if "training" in kwargs else kwargs.get("train", (*args, None, True, True)[2])
    return training is False


def is_reshape(func: Callable[..., Any]) -> bool:
    """Whether a call shows the same values in another shape."""
    return func in _RESHAPES


def shares_memory(result: Tensor, tensor: Tensor) -> bool:
    """Whether a reshaped tensor is a view of all of another, so that later changes show in both."""
    return result.data_ptr() == tensor.data_ptr() and result.numel() == tensor.numel()


def as_activation(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], tensor: Tensor
) -> Callable[[Tensor], Tensor] | None:
    """The call as a function of ``tensor`` alone, if it is an activation that can have unit variance; else None."""
    if func is F.bipolar:
        f = args[0] if args else kwargs["f"]
        entry = of_class(type(f))
        follows = is_unbounded(f) if entry is None else entry.unit_variance(**entry.options_of_module(f))
    else:
        entry = of_function(func)
        follows = entry is not None and entry.unit_variance(**entry.options_of_call(args, kwargs))
    return as_function(func, args, kwargs, tensor) if follows else None


def is_activation(func: Callable[..., Any]) -> bool:
    """Whether a torch function is an activation, bounded or not."""
    return func is F.bipolar or of_function(func) is not None


def is_max_pooling(func: Callable[..., Any]) -> bool:
    """Whether a torch function takes maxima over positions, so that a shift of a channel passes through."""
    return getattr(func, "__name__", "").removeprefix("adaptive_") in ("max_pool1d", "max_pool2d", "max_pool3d")


def as_function(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], tensor: Tensor
) -> Callable[[Tensor], Tensor]:
    """A call as a function of one of its arguments."""

    def f(other: Tensor) -> Tensor:
        output: Tensor = func(
            *(other if value is tensor else value for value in args),
            **{name: other if value is tensor else value for name, value in kwargs.items()},
        )
        return output

    return f


def is_unbounded(f: Callable[[Tensor], Tensor], channels: int = 1, like: Tensor | None = None) -> bool:
    """Whether a function that is not in the catalogue is unbounded, judged by two points."""
    points = torch.tensor([[-1e6], [1e6]]).repeat(1, channels)
    with torch.no_grad():
        return bool(f(points if like is None else points.to(like)).abs().max() > 1e3)
