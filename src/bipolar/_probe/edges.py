"""Edges between layers: whose outputs reach which layer, followed through the torch functions between them."""

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from bipolar._tools.nested import tensors_in

#: Functions whose output has a size of its own, whatever that of the input.
_NORMALISING_NAMES = """
softmax log_softmax softmin gumbel_softmax layer_norm rms_norm group_norm instance_norm normalize
"""
_NORMALISING = frozenset(_NORMALISING_NAMES.split())


class Edges(TorchFunctionMode):
    """Keeps for every tensor the layers that it was made of, while this mode is active.

    A path ends at a function that normalises, because it hands on no size; attention hands on the size of its values
    alone. What no torch function shows, such as TorchScript, has no edges.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made_of: dict[int, tuple[Callable[[], Tensor | None], frozenset[int]]] = {}

    def sources(self, values: Any) -> frozenset[int]:
        """The layers that reach the tensors in a structure with no other layer between."""
        found: frozenset[int] = frozenset()
        for tensor in tensors_in(values):
            reference, made_of = self._made_of.get(id(tensor), (None, found))
            if reference is not None and reference() is tensor:
                found |= made_of
        return found

    def mark(self, values: Any, sources: frozenset[int]) -> None:
        """Says of which layers the tensors in a structure were made."""
        for tensor in tensors_in(values):
            if tensor.is_floating_point():
                self._made_of[id(tensor)] = (weakref.ref(tensor), sources)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        sources = self._handed_on(name, args, kwargs)
        result = func(*args, **kwargs)
        changed = args[0] if name == "__setitem__" else result  # which may be the first argument, changed in place
        self.mark(changed, sources)
        if args and changed is args[0] and isinstance(changed, Tensor) and changed._base is not None:
            self.mark(changed._base, sources | self.sources(changed._base))  # a view shows its base
        return result

    def _handed_on(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> frozenset[int]:
        """The layers whose size a function's result depends on."""
        if name in _NORMALISING or name.endswith("_like") or name.startswith("new_"):
            return frozenset()
        if name == "scaled_dot_product_attention":
            return self.sources(args[2] if len(args) > 2 else kwargs.get("value"))
        return self.sources((args, kwargs))
