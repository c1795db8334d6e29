"""The forward pass of LSUV, in which each layer is scaled at the first use of its output."""

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bipolar._init.channels import as_output, channel_dim, has_own_channels, parts_of
from bipolar._init.composed import scale_composed, scale_output_projection
from bipolar._init.follow import (
    as_activation,
    as_function,
    is_activation,
    is_identity,
    is_max_pooling,
    is_metadata,
    is_reshape,
    shares_memory,
)
from bipolar._init.meter import Meter
from bipolar._init.report import LSUVError, LSUVRow, kind_of
from bipolar._init.selection import COMPOSED
from bipolar._init.settings import Settings
from bipolar._init.single import Pending, Use, has_free_bias, input_of, scale_layer
from bipolar._tools.nested import tensors_in


class SequentialPass(TorchFunctionMode):
    """Watches the calls of layers, by hooks, and of torch functions, by this mode, during one forward pass.

    Args:
        layers: the layers to scale, with their names
        notes: the layers that keep their weights, with the reason
        settings: the arguments of LSUV
    """

    def __init__(self, layers: dict[nn.Module, str], notes: dict[nn.Module, str], settings: Settings) -> None:
        super().__init__()
        self.layers = layers
        self.notes = notes
        self.settings = settings
        self.rows: dict[str, LSUVRow] = {}
        self.calls: Counter[nn.Module] = Counter()
        self.pending: dict[int, Pending] = {}
        self.scaled_at: dict[nn.Module, int] = {}  # the call at which a layer was scaled
        self.constant: list[nn.Module] = []  # layers without an input so far, as in a recurrence that starts at zero
        self.pooled: dict[int, tuple[Callable[[], Tensor | None], nn.Module]] = {}  # outputs behind max pooling
        self.owner: dict[int, str] = {}  # the layer of each weight that has been scaled
        self.start: dict[nn.Module, Tensor] = {}  # the weights before they were made orthogonal

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Watches the calls of the layers, until the end of the block."""
        handles = []
        try:
            for layer in self.layers:
                handles.append(layer.register_forward_pre_hook(self._before_layer, with_kwargs=True))
                handles.append(layer.register_forward_hook(self._after_layer, with_kwargs=True))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _before_layer(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        weights = [p for name, p in layer._parameters.items() if p is not None and "weight" in name]
        self._settle(layer, weights)
        self.calls[layer] += 1
        if self.calls[layer] > 1:
            return
        name = self.layers[layer]
        tied = [self.owner[id(weight)] for weight in weights if id(weight) in self.owner]
        if tied and layer not in self.notes:
            self.notes[layer] = f"tied to {tied[0]!r}"
        if layer in self.notes:
            self._add(LSUVRow(name, kind_of(layer), note=self.notes[layer]))
            return
        self.owner |= {id(weight): name for weight in weights}
        if isinstance(layer, COMPOSED):
            self.scaled_at[layer] = 1
            for row in scale_composed(self.settings, name, layer, args, kwargs):
                self._add(row)
            if isinstance(layer, nn.MultiheadAttention):
                self._scale_output_projection(layer, args, kwargs)
            return
        self._add(LSUVRow(name, kind_of(layer)))  # reserves its place in the order of execution
        if self.settings.orthogonal:
            self.start[layer] = self.settings.weights.get(layer, "weight").clone()
            self.settings.weights.set(layer, "weight", self.settings.weights.orthogonal(self.start[layer]))

    def _scale_output_projection(
        self, layer: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Scales the layer inside attention, which attention uses without calling it."""
        projection = layer.out_proj
        if projection in self.layers and projection not in self.notes:
            self.calls[projection] += 1
            self.scaled_at[projection] = 1
            self._add(scale_output_projection(self.settings, self.layers[projection], layer, args, kwargs))

    def _after_layer(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        if layer not in self.scaled_at and layer not in self.notes:
            version = input_of(args, kwargs)._version
            self.pending[id(output)] = Pending(weakref.ref(output), layer, args, kwargs, version)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not (self.pending or self.pooled) or is_metadata(func):
            return func(*args, **kwargs)
        pools: nn.Module | None = None
        for tensor in tensors_in((args, kwargs)):
            self._look_behind_pooling(func, tensor)
            waiting = self.pending.get(id(tensor))
            if waiting is None or waiting.output() is not tensor:
                continue
            if is_identity(func, args, kwargs):
                del self.pending[id(tensor)]
                result = func(*args, **kwargs)
                self.pending[id(result)] = waiting._replace(output=weakref.ref(result))
                return result
            if is_reshape(func):  # an activation may still follow directly, and see the output in this shape
                result = func(*args, **kwargs)
                if result is tensor:  # there was nothing to reshape
                    return result
                if shares_memory(result, tensor):
                    whole = tensor if waiting.whole is None else waiting.whole
                    view = _then(waiting.view, as_function(func, args, kwargs, tensor))
                    self.pending[id(result)] = waiting._replace(output=weakref.ref(result), whole=whole, view=view)
                    return result
            activation = as_activation(func, args, kwargs, tensor) if self.settings.after_activation else None
            whole = tensor if waiting.whole is None else waiting.whole
            parts = parts_of(waiting.layer, whole, func, as_function(func, args, kwargs, tensor), waiting.view)
            self._scale(waiting, tensor, Use(func, activation, parts))
            pools = waiting.layer if is_max_pooling(func) else None
        result = func(*args, **kwargs)
        if pools is not None and isinstance(result, Tensor):
            self.pooled[id(result)] = (weakref.ref(result), pools)
        return result

    def finish(self, result: Any) -> None:
        """Scales, after the forward pass, the layers whose outputs are in the ``result`` of the network."""
        own = {id(tensor) for tensor in tensors_in(result)}
        for key, waiting in list(self.pending.items()):
            output = waiting.output()
            if output is not None and id(output) in own and key in self.pending:
                self._scale(waiting, output, Use())
        for layer in self.constant:
            name, calls = self.layers[layer], self.calls[layer]
            raise LSUVError(
                f"layer {name!r}: its output has no {self.settings.target}, because its input has none"
                f"{'' if calls == 1 else f' in all of its {calls} calls'}; the samples of the batch have to differ, "
                "and a recurrence that starts from a constant state needs two steps or more"
            )
        for layer, name in self.layers.items():
            if not self.calls[layer]:
                self._add(LSUVRow(name, kind_of(layer), note="never called"))
                continue
            for row in [row for row in self.rows.values() if row.name == name or row.name.startswith(f"{name}.weight")]:
                if row.before is None and not row.note:
                    # its output was thrown away, or used where no torch function shows it, as in TorchScript
                    if layer in self.start:
                        self.settings.weights.set(layer, "weight", self.start[layer])
                    self._add(replace(row, note="its output was not seen in use"))
                elif self.calls[layer] > 1 and layer in self.scaled_at:
                    at = self.scaled_at[layer]
                    where = "the first" if at == 1 else f"call {at}, the first whose input was not constant"
                    self._note(row.name, f"called {self.calls[layer]} times, scaled at {where}")

    def _settle(self, layer: nn.Module, weights: Sequence[Tensor]) -> None:
        """Scales a layer that still waits for the first use of its output before its weight is used a second time."""
        shared = {id(weight) for weight in weights}
        for key, waiting in list(self.pending.items()):
            output = waiting.output()
            if waiting.layer is layer or id(waiting.layer._parameters.get("weight")) in shared:
                if output is not None and key in self.pending:
                    self._scale(waiting, output, Use())
                self.pending.pop(key, None)

    def _scale(self, waiting: Pending, output: Tensor, use: Use) -> None:
        """Scales a layer at the first use of its output."""
        layer, name = waiting.layer, self.layers[waiting.layer]
        self.pending = {key: other for key, other in self.pending.items() if other.layer is not layer}
        row = scale_layer(self.settings, name, waiting, output if waiting.whole is None else waiting.whole, use)
        self.constant = [other for other in self.constant if other is not layer]
        if row is None:
            self.constant.append(layer)  # a later call may have another input
        else:
            self.scaled_at[layer] = self.calls[layer]
            self._add(row)

    def _look_behind_pooling(self, func: Any, tensor: Tensor) -> None:
        """Centres, or reports, the input of an activation that follows a layer and max pooling."""
        reference, layer = self.pooled.get(id(tensor), (None, None))
        if reference is None or layer is None or reference() is not tensor:
            return
        del self.pooled[id(tensor)]
        if not is_activation(func):
            return
        name, meter, weights = self.layers[layer], self.settings.meter, self.settings.weights
        mean, deviation = meter.mean(tensor), Meter("variance", meter.group)(tensor) ** 0.5
        if (
            self.settings.centre
            and has_free_bias(layer)
            and has_own_channels(layer, weights.get(layer, "weight"), tensor)
        ):
            shift, _ = meter.channels(tensor, channel_dim(layer))
            tensor -= as_output(layer, shift)
            weights.set(layer, "bias", weights.get(layer, "bias") - shift)
            self._note(name, "centred behind max pooling")
        elif mean > deviation / 2:
            self._note(
                name,
                f"max pooling lifts the input of {func.__name__} to a mean of {mean:.3g} (standard deviation "
                f"{deviation:.3g}), where it is almost linear",
            )

    def _add(self, row: LSUVRow) -> None:
        self.rows[row.name] = row

    def _note(self, name: str, note: str) -> None:
        """Adds a note to the row of that name."""
        row = self.rows[name]
        self._add(replace(row, note=f"{row.note}; {note}" if row.note else note))


def _then(first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: second(first(x))
