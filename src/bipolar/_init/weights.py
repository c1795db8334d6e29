"""Changes of weights that can be undone."""

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parametrize


class WeightSetter:
    """Sets weights, parametrised ones too; an error within a ``with`` block puts all of them back."""

    def __init__(self, group: dist.ProcessGroup | None, generator: torch.Generator | None) -> None:
        self.group = group
        self.generator = generator
        self.scaled: list[tuple[nn.Module, str]] = []  # the weights whose size LSUV chose, by module and name
        # one copy of each weight, however often it is set
        self._undo: dict[tuple[nn.Module, str], Callable[[], object]] = {}

    def __enter__(self) -> "WeightSetter":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            for undo in self._undo.values():
                undo()

    def get(self, module: nn.Module, name: str) -> Tensor:
        weight: Tensor = getattr(module, name)
        return weight.detach()

    def set(self, module: nn.Module, name: str, value: Tensor) -> bool:
        """Sets a weight; returns False and changes nothing where a parametrisation does not allow this value."""
        if not parametrize.is_parametrized(module, name):
            weight: Tensor = getattr(module, name)
            if (module, name) not in self._undo:
                self._undo[module, name] = partial(_copy, weight, weight.detach().clone())
            weight.copy_(value)
            return True
        parametrization = cast(nn.ModuleDict, module.parametrizations)[name]
        undo = partial(parametrization.load_state_dict, copy.deepcopy(parametrization.state_dict()))
        try:
            setattr(module, name, value)
            fits = torch.allclose(self.get(module, name), value, rtol=1e-2, atol=1e-2 * float(value.abs().max()))
        except (RuntimeError, ValueError):  # the parametrisation has no inverse, or none for this value
            fits = False
        if fits:
            self._undo.setdefault((module, name), undo)
        else:
            undo()
        return fits

    def orthogonal(self, like: Tensor, blocks: int = 1) -> Tensor:
        """A random tensor of the shape of ``like``, of ``blocks`` orthogonal matrices; the same in all processes."""
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32  # QR needs at least single precision
        device = self.generator.device if self.generator is not None else like.device
        fresh = torch.empty(like.shape, dtype=dtype, device=device)
        for block in fresh.chunk(blocks):
            nn.init.orthogonal_(block, generator=self.generator)
        fresh = fresh.to(like)
        if self.group is not None:
            dist.broadcast(fresh, src=dist.get_global_rank(self.group, 0), group=self.group)
        return fresh


def parameter_names(model: nn.Module, weights: Iterable[tuple[nn.Module, str]]) -> list[str]:
    """The names of weights among the model's parameters; of a parametrised one, those it is computed from."""
    found: set[Tensor] = set()
    for module, name in weights:
        if parametrize.is_parametrized(module, name):
            found |= set(cast(nn.ModuleDict, module.parametrizations)[name].parameters())
        else:
            found.add(getattr(module, name))
    return [name for name, parameter in model.named_parameters() if parameter in found]


def _copy(tensor: Tensor, value: Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(value)
