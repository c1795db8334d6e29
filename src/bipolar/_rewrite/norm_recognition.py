"""Norm layers of a model: torch's, those that compute the same under another name, and those that also activate."""

import inspect
from collections import OrderedDict
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from bipolar._rewrite.outputs import difference
from bipolar._rewrite.replacement import replaced
from bipolar._symmetry.trace import record
from bipolar._tools.calling import call
from bipolar._tools.restoring import evaluating, restored

NORMS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
NORM_FUNCTIONS = frozenset(("batch_norm", "instance_norm", "layer_norm", "group_norm", "rms_norm"))


def is_batch_norm(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) and not isinstance(module, _InstanceNorm)


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a norm layer, by its class or by what it computes."""
    return isinstance(module, NORMS) or computes_a_norm(module)


def computes_a_norm(module: nn.Module) -> bool:
    r"""Whether a module without others in it takes the scale out of its input, as a hand-written RMSNorm does.

    On random inputs a norm f keeps the shape, has :math:`f(2x) = f(x)` and :math:`f(-x) - f(0) = -(f(x) - f(0))`, and
    each element of its output depends on others of its input.
    """
    parameters = dict(module.named_parameters(recurse=False))
    sizes = {p.shape for p in parameters.values()}
    required = [p for p in inspect.signature(module.forward).parameters.values() if p.default is p.empty]
    if (
        type(module).__module__.startswith("torch.nn.")
        or any(module.children())
        or len(sizes) > 1
        or any(len(size) > 1 or p.is_meta for p in parameters.values() for size in sizes)
        or len(required) != 1
    ):
        return False
    channels = next(iter(sizes)).numel() if sizes else 8
    like = next(iter(parameters.values()), torch.empty(()))
    ones = {name: torch.ones_like(p) for name, p in parameters.items()}
    with restored(module), evaluating(module), torch.no_grad():
        for shape in ((2, 3, channels), (2, channels, 3, 3)):
            x = 10 * torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(like)
            try:
                if _takes_the_scale_out(lambda x: functional_call(module, ones, (x,)), x, bool(parameters)):
                    return True
            except Exception:  # noqa: S112 - whatever a module says to a wrong input
                continue
    return False


def _takes_the_scale_out(f: Any, x: Tensor, has_weights: bool) -> bool:
    y, other = f(x), x.clone()
    if not isinstance(y, Tensor) or y.shape != x.shape:
        return False
    centre = torch.nan_to_num(f(torch.zeros_like(x)))
    other.view(-1)[0] *= 10
    near = 1e-2 * float((y - centre).abs().max())
    scaled = torch.allclose(f(2 * x), y, atol=near)
    odd = torch.allclose(f(-x) - centre, centre - y, atol=near)
    mixing = bool(((f(other) - y).flatten()[1:].abs() > near).any())
    unit = has_weights or 0.5 < float(y.square().mean()) < 2  # not a vector of length one, as for cosine similarity
    return near > 0 and scaled and odd and mixing and unit


@dataclass
class ChosenNorms:
    """The norms of a model that are to go, as modules that do nothing else, and those that cannot, with the reason."""

    model: nn.Module
    norms: list[tuple[str, nn.Module]] = field(default_factory=list)
    left: list[tuple[str, nn.Module, str]] = field(default_factory=list)
    #: The classes from before norms were split from their activations, by name.
    split: dict[str, str] = field(default_factory=dict)


def split_norms(model: nn.Module, chosen: Sequence[tuple[str, nn.Module]], example: Any) -> ChosenNorms:
    """Splits norms that also activate into a norm of torch's, ``norm``, and the rest."""
    found = ChosenNorms(model)
    own: set[nn.Module] = {module for _, module in chosen if isinstance(module, NORMS) and not _is_plain(module)}
    inputs = _inputs_of(own, model, example)
    for name, norm in chosen:
        if norm not in own:
            found.norms.append((name, norm))
        elif norm not in inputs:
            found.left.append((name, norm, "it did not run on this example"))
        elif (parts := _parts_after(norm, inputs[norm])) is not None:
            plain = _of_torch(norm)
            path = f"{name}.norm" if name else "norm"
            found.model = replaced(
                found.model, norm, nn.Sequential(OrderedDict(norm=plain, **parts)) if parts else plain
            )
            found.norms.append((path if parts else name, plain))
            if parts:
                found.split[path] = type(norm).__name__
        elif computes_a_norm(norm) and not is_batch_norm(norm):
            found.norms.append((name, norm))
        else:
            reason = f"its forward is more than {_base(norm).__name__} and activations: make it a module of each"
            found.left.append((name, norm, reason))
    return found


def _base(norm: nn.Module) -> type[nn.Module]:
    """The class of torch's that a norm is derived from."""
    return next(kind for kind in type(norm).__mro__ if kind.__module__.startswith("torch.nn."))


def _is_plain(norm: nn.Module) -> bool:
    return type(norm).forward is _base(norm).forward and not any(norm.children())


def _of_torch(norm: nn.Module) -> nn.Module:
    """The norm alone, with the same parameters and buffers."""
    plain = copy(norm)
    plain.__class__, plain._modules = _base(norm), {}
    for name, hooks in vars(plain).items():
        if name.endswith("_hooks"):  # they go to what takes the place of the whole
            setattr(plain, name, type(hooks)())
    return plain


def _inputs_of(norms: set[nn.Module], model: nn.Module, example: Any) -> dict[nn.Module, Tensor]:
    """The first input of each norm in evaluation mode."""
    inputs: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            inputs.setdefault(module, args[0].clone())

    handles = [norm.register_forward_pre_hook(keep) for norm in norms]
    try:
        if handles:
            with restored(model), torch.no_grad():
                model.eval()
                call(model, example)
    finally:
        for handle in handles:
            handle.remove()
    return inputs


def _parts_after(norm: nn.Module, x: Tensor) -> dict[str, nn.Module] | None:
    """The modules that a norm calls after it has normalised, and its activations as modules; None if there is more."""
    recording = record(norm, x)
    called = dict.fromkeys(name for name in recording.arguments if name and "." not in name)
    children = {name: norm.get_submodule(name) for name in called}
    sites = {call.site: call.activation for call in recording.activations if call.site.owner == ""}
    functions = {f"activation{i + 1}": activation.plain() for i, activation in enumerate(sites.values())}
    plain = _of_torch(norm)
    with restored(norm), torch.no_grad():
        norm.eval()
        expected = norm(x.clone())
        for parts in ({**functions, **children}, {**children, **functions}):
            try:
                found = nn.Sequential(plain, *parts.values()).eval()(x.clone())
            except Exception:  # noqa: S112 - such as a layer norm's to channels in dimension 1
                continue
            if isinstance(found, Tensor) and not difference([expected], [found], 1e-5):
                return parts
    return None
