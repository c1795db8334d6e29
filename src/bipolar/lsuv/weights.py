"""Changing weights so that it can be undone."""

import copy
from collections.abc import Callable
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parametrize


class Weights:
    """Sets weights, parametrised ones too, and can put all of them back."""

    def __init__(self, group: dist.ProcessGroup | None, generator: torch.Generator | None) -> None:
        self.group = group
        self.generator = generator
        self._undo: list[Callable[[], None]] = []

    def get(self, module: nn.Module, name: str) -> Tensor:
        weight: Tensor = getattr(module, name)
        return weight.detach()

    def set(self, module: nn.Module, name: str, value: Tensor) -> bool:
        """Sets a weight; False, and nothing changed, where a parametrisation does not let it have this value."""
        if not parametrize.is_parametrized(module, name):
            weight: Tensor = getattr(module, name)
            before = weight.detach().clone()
            weight.copy_(value)
            self._undo.append(lambda: _copy(weight, before))
            return True
        parametrization = cast(nn.ModuleDict, module.parametrizations)[name]
        before_all = copy.deepcopy(parametrization.state_dict())

        def undo() -> None:
            parametrization.load_state_dict(before_all)

        try:
            setattr(module, name, value)
        except (NotImplementedError, RuntimeError, ValueError):  # it has no inverse, or none for this value
            undo()
            return False
        if not torch.allclose(self.get(module, name), value, rtol=1e-2, atol=1e-2 * float(value.abs().max())):
            undo()
            return False
        self._undo.append(undo)
        return True

    def orthogonal(self, like: Tensor, blocks: int = 1) -> Tensor:
        """A random tensor of the shape of ``like``, of ``blocks`` orthogonal matrices; on all processes the same."""
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32  # QR is not made for less
        device = self.generator.device if self.generator is not None else like.device
        fresh = torch.empty(like.shape, dtype=dtype, device=device)
        for block in fresh.chunk(blocks):
            nn.init.orthogonal_(block, generator=self.generator)
        fresh = fresh.to(like)
        if self.group is not None:
            dist.broadcast(fresh, src=dist.get_global_rank(self.group, 0), group=self.group)
        return fresh

    def undo(self) -> None:
        """Puts back all that was set, the last first."""
        while self._undo:
            self._undo.pop()()


def _copy(tensor: Tensor, value: Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(value)
