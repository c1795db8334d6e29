"""Norm layers of a model: torch's, those that compute the same under another name, and those that also activate."""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from bipolar._rewrite.outputs import difference
from bipolar._rewrite.replacement import replaced
from bipolar._rewrite.steps import Step, step, stored
from bipolar._symmetry.computed import computes_a_norm
from bipolar._symmetry.recording import Key, Node, Recording
from bipolar._symmetry.trace import record
from bipolar._tools.calling import call
from bipolar._tools.restoring import restored

NORMS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
NORM_FUNCTIONS = frozenset(("batch_norm", "instance_norm", "layer_norm", "group_norm", "rms_norm"))


def is_batch_norm(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) and not isinstance(module, _InstanceNorm)


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a norm layer, by its class or by what it computes."""
    return isinstance(module, NORMS) or computes_a_norm(module)


def norm_calls(recording: Recording, functions: Collection[str]) -> list[Node]:
    """The calls of norms as functions in a recorded pass, apart from those that standardise a weight."""
    own = {id(tensor) for tensor in (*recording.model.parameters(), *recording.model.buffers())}
    of_weights: set[Key] = set()
    found = []
    for node in recording.nodes:
        known = [key[0] in own or key in of_weights for key in node.inputs]
        if known and all(known):
            of_weights |= set(node.outputs)
        if node.function in functions and not (known and known[0]):
            found.append(node)
    return found


@dataclass
class ChosenNorms:
    """The norms of a model that are to go, as modules that do nothing else, and those that cannot, with the reason."""

    model: nn.Module
    norms: list[tuple[str, nn.Module]] = field(default_factory=list)
    left: list[tuple[str, nn.Module, str]] = field(default_factory=list)
    #: The classes from before norms were split from their activations, by name.
    split: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)


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
            path = (f"{name}.norm" if name else "norm") if parts else name
            if parts:
                known = [(key, None if key in norm._modules else stored(part)) for key, part in parts.items()]
                found.steps.append(step("split", name, norm, parts=known))
                found.split[path] = type(norm).__name__
            found.model, plain = split(found.model, norm, parts)
            found.norms.append((path, plain))
        elif computes_a_norm(norm) and not is_batch_norm(norm):
            found.norms.append((name, norm))
        else:
            reason = f"its forward is more than {_base(norm).__name__} and activations: make it a module of each"
            found.left.append((name, norm, reason))
    return found


def split(model: nn.Module, norm: nn.Module, parts: dict[str, nn.Module]) -> tuple[nn.Module, nn.Module]:
    """The model with a norm of torch's and other parts in place of a norm; and the norm of torch's."""
    plain = _of_torch(norm)
    return replaced(model, norm, nn.Sequential(OrderedDict(norm=plain, **parts)) if parts else plain), plain


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
