"""Roles of a model's parameters: hidden matrices, and what an optimiser treats in another way."""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import ParametrizationList

from bipolar._rewrite.norm_recognition import NORMS
from bipolar._tools.calling import unwrapped
from bipolar.optim._orthogonal import is_matrix

Role: TypeAlias = Literal["matrix", "vector", "embedding", "last layer", "norm"]


@dataclass(frozen=True)
class Part:
    """A parameter, its first name, its role, and the modules that have it."""

    name: str
    parameter: nn.Parameter
    role: Role
    owners: tuple[nn.Module, ...]


def parts_of(model: nn.Module, last: str | Iterable[str] | None) -> list[Part]:
    """All parameters with their roles, in the order of the model; ``last`` as for :func:`groups`."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a module, got {type(model).__name__}")
    model = unwrapped(model)
    owners: dict[nn.Parameter, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(parameter, []).append(module)
    if any(map(is_lazy, owners)):
        raise ValueError("model: it has lazy parameters without a shape; run a batch through it first")
    if not owners:
        raise ValueError(f"model: there is no parameter in {type(model).__name__}")
    heads = {p for layer in _last_layers(model, last) for p in layer.parameters()}
    return [Part(name, p, _role(p, owners[p], p in heads), tuple(owners[p])) for name, p in model.named_parameters()]


def _role(parameter: nn.Parameter, owners: list[nn.Module], is_last: bool) -> Role:
    if any(isinstance(owner, (nn.Embedding, nn.EmbeddingBag)) for owner in owners):
        return "embedding"
    if is_last:
        return "last layer"
    if any(isinstance(owner, NORMS) for owner in owners):
        return "norm"
    return "matrix" if is_matrix(parameter) else "vector"


def _last_layers(model: nn.Module, last: str | Iterable[str] | None) -> list[nn.Module]:
    """The modules that ``last`` names; for None, the linear or convolution layer after which no matrix comes."""
    modules = dict(model.named_modules())
    if last is None:
        layers = (nn.Linear, _ConvNd)  # also with one output, a matrix of one row
        candidates = [m for m in modules.values() if isinstance(m, layers) or any(map(is_matrix, _weights(m)))]
        return candidates[-1:] if candidates and isinstance(candidates[-1], layers) else []
    found: list[nn.Module] = []
    for pattern in [last] if isinstance(last, str) else last:
        matches = fnmatch.filter(modules, pattern)
        if not matches:
            raise ValueError(f"last: {pattern!r} matches no module of {type(model).__name__}")
        found += [modules[name] for name in matches]
    return found


def _weights(module: nn.Module) -> list[nn.Parameter]:
    """The parameters of a module; those of a parametrisation belong to the layer that it is for."""
    if isinstance(module, ParametrizationList):
        return []
    return [p for p in module._parameters.values() if p is not None]


def groups(model: nn.Module, *, last: str | Iterable[str] | None = None) -> list[dict[str, Any]]:
    r"""Parameter groups for :class:`bipolar.optim.Muon`: hidden matrices to Muon, the rest to Adam.

    The rest are embeddings, the last layer, the parameters of norms, and all vectors: biases, gains, scalars. The last
    layer is the linear or convolution layer that was registered last, if no recurrent layer or other matrix comes after
    it: ``head`` of :class:`~bipolar.models.WideResNet`, ``decoder`` of :class:`~bipolar.models.CharRNN`, and nothing of
    a :class:`~bipolar.StackedRNN`. Where a model registers its layers in another order, or has several heads, name
    them.

    Args:
        model: any module, within ``DistributedDataParallel`` and ``torch.compile`` too
        last: the last layers, by names with wildcards (``"heads.*"``); an empty tuple for none. Default: see above

    Returns:
        groups of named parameters with the key ``"method"``, ``"muon"`` or ``"adam"``

    Examples::

        >>> model = bipolar.models.CharRNN("abc ", hidden_size=32, num_layers=2)
        >>> for group in bipolar.optim.groups(model):
        ...     print(group["method"], [name for name, _ in group["params"]])
        muon ['rnn.weight_ih_l0', 'rnn.weight_hh_l0', 'rnn.weight_ih_l1', 'rnn.weight_hh_l1']
        adam ['rnn.bias_l0', 'rnn.bias_l1', 'decoder.weight', 'decoder.bias']
    """
    parts = parts_of(model, last)
    found = [
        {
            "params": [(part.name, part.parameter) for part in parts if (part.role == "matrix") == matrices],
            "method": name,
        }
        for name, matrices in (("muon", True), ("adam", False))
    ]
    return [group for group in found if group["params"]]
