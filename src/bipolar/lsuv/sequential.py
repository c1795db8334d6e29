"""The pass itself: each layer is scaled the moment its output is first used."""

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bipolar.lsuv import recurrent
from bipolar.lsuv.follow import as_activation, is_identity, is_metadata
from bipolar.lsuv.report import LSUVRow
from bipolar.lsuv.scale import Meter, Solution, UnsolvableError, solve
from bipolar.lsuv.weights import Weights
from bipolar.state import tensors_in


class LSUVError(RuntimeError):
    """LSUV could not initialise a model; the message names the layer and the reason."""


class Pending(NamedTuple):
    """A layer that has run, and whose output nothing has used yet."""

    output: Callable[[], Tensor | None]  # a weak reference: the network decides how long an output lives
    layer: nn.Module
    input: Tensor


class SequentialPass(TorchFunctionMode):
    """Watches the layers by hooks, and by this mode all calls of torch functions, during one forward pass.

    Args:
        layers: the layers to scale, with their names
        notes: those of them that are to be left alone, with the reason
        meter: measures
        weights: sets weights
        after_activation: measure after an activation that directly follows a layer
        orthogonal: start from orthogonal weights
        tol, max_iter: for the solver
    """

    def __init__(
        self,
        layers: dict[nn.Module, str],
        notes: dict[nn.Module, str],
        meter: Meter,
        weights: Weights,
        *,
        after_activation: bool,
        orthogonal: bool,
        tol: float,
        max_iter: int,
    ) -> None:
        super().__init__()
        self.layers = layers
        self.notes = notes
        self.meter = meter
        self.weights = weights
        self.after_activation = after_activation
        self.orthogonal = orthogonal
        self.tol = tol
        self.max_iter = max_iter
        self.rows: dict[str, LSUVRow] = {}
        self.calls: Counter[nn.Module] = Counter()
        self.pending: dict[int, Pending] = {}
        self.owner: dict[int, str] = {}  # of each weight that has been scaled, the layer

    def before_layer(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A hook: runs before each call of a layer."""
        self.calls[layer] += 1
        if self.calls[layer] > 1:
            return
        name = self.layers[layer]
        weight = layer._parameters.get("weight")
        if weight is not None and id(weight) in self.owner:
            self.notes[layer] = f"tied to {self.owner[id(weight)]!r}"
        if layer in self.notes:
            self._add(LSUVRow(name, _kind(layer), note=self.notes[layer]))
        elif isinstance(layer, recurrent.LAYERS):
            self._scale_recurrent(name, layer, _first(args, kwargs))
        else:
            self.owner[id(weight)] = name
            self._add(LSUVRow(name, _kind(layer)))  # its place in the order of execution
            if self.orthogonal:
                start = self.weights.orthogonal(self.weights.get(layer, "weight"))
                self.weights.set(layer, "weight", start)

    def after_layer(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        """A hook: runs after each call of a layer."""
        if self.calls[layer] == 1 and layer not in self.notes and not isinstance(layer, recurrent.LAYERS):
            self.pending[id(output)] = Pending(weakref.ref(output), layer, _first(args, kwargs))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.pending or is_metadata(func):
            return func(*args, **kwargs)
        for tensor in tensors_in((args, kwargs)):
            waiting = self.pending.get(id(tensor))
            if waiting is None or waiting.output() is not tensor:
                continue
            del self.pending[id(tensor)]
            if is_identity(func, args, kwargs):
                result = func(*args, **kwargs)
                self.pending[id(result)] = waiting._replace(output=weakref.ref(result))
                return result
            activation = as_activation(func, args, kwargs, tensor) if self.after_activation else None
            self._scale(waiting, tensor, activation)
        return func(*args, **kwargs)

    def finish(self) -> None:
        """After the forward pass: scales the layers whose outputs are the network's own."""
        for waiting in self.pending.values():
            output = waiting.output()
            if output is not None:
                self._scale(waiting, output, None)
        for layer, name in self.layers.items():
            if not self.calls[layer]:
                self._add(LSUVRow(name, _kind(layer), note="never called"))
            elif self.calls[layer] > 1 and name in self.rows and not self.rows[name].note:
                note = f"called {self.calls[layer]} times, scaled at the first"
                self._add(replace(self.rows[name], note=note))

    def _scale(self, waiting: Pending, output: Tensor, activation: Callable[[Tensor], Tensor] | None) -> None:
        layer, name = waiting.layer, self.layers[waiting.layer]
        bias = _broadcast_bias(layer)
        linear = output if bias is None else output - bias

        def at(scale: float) -> Tensor:
            return linear * scale if bias is None else linear * scale + bias

        def statistic(scale: float) -> float:
            return self.meter(at(scale) if activation is None else activation(at(scale)))

        solution = self._solve(name, statistic, linear, waiting.input)
        if self.weights.set(layer, "weight", self.weights.get(layer, "weight") * solution.scale):
            output.copy_(at(solution.scale))
            self._add(LSUVRow(name, _kind(layer), *solution))
        else:
            note = "its parametrisation fixes the scale"
            self._add(LSUVRow(name, _kind(layer), solution.before, solution.before, 1.0, solution.rounds, note))

    def _scale_recurrent(self, name: str, module: nn.Module, input: Any) -> None:
        activation = recurrent.nonlinearity_of(module) if self.after_activation else None
        for part in recurrent.parts_of(module, input):
            names = (part.weight_ih, part.weight_hh)
            if self.orthogonal:
                for weight in names:
                    like = self.weights.get(module, weight)
                    self.weights.set(module, weight, self.weights.orthogonal(like, recurrent.gates_of(module)))
            vertical, horizontal = recurrent.preactivation(module, part, self.weights.generator)
            balance = (self.meter(vertical) / max(self.meter(horizontal), 1e-30)) ** 0.5
            linear, bias = vertical + balance * horizontal, recurrent.bias(module, part)

            def statistic(scale: float, linear: Tensor = linear, bias: Tensor | None = bias) -> float:
                gates = linear * scale if bias is None else linear * scale + bias
                return self.meter(gates if activation is None else activation(gates))

            solution = self._solve(f"{name}.{part.weight_ih}", statistic, vertical, part.input)
            for weight, factor in zip(names, (solution.scale, solution.scale * balance), strict=True):
                self.weights.set(module, weight, self.weights.get(module, weight) * factor)
                row = LSUVRow(f"{name}.{weight}", _kind(module), *solution._replace(scale=factor))
                self._add(row)

    def _solve(self, name: str, statistic: Callable[[float], float], linear: Tensor, input: Tensor) -> Solution:
        size = self.meter(linear)
        if size == 0:
            constant = bool((input == input.flatten()[0]).all())
            raise LSUVError(
                f"layer {name!r}: its output has no variance, because its input has none; "
                "the samples of the batch have to differ"
                if constant
                else f"layer {name!r} is dead: its weight makes the same of every input; "
                "exclude it, or use orthogonal=True"
            )
        try:
            return solve(statistic, self.tol, self.max_iter)
        except UnsolvableError as error:
            if not bool(torch.isfinite(input).all()):
                raise LSUVError(f"layer {name!r}: there is NaN or infinity in its input") from None
            raise LSUVError(f"layer {name!r}: its {self.meter.target.replace('_', ' ')} {error}") from None

    def _add(self, row: LSUVRow) -> None:
        self.rows[row.name] = row


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args else next(iter(kwargs.values()))


def _kind(layer: nn.Module) -> str:
    return type(layer).__name__.removeprefix("Parametrized")


def _broadcast_bias(layer: nn.Module) -> Tensor | None:
    """The bias in a shape that adds to the layer's output; None if it has none, or only zeros."""
    bias = layer.bias
    if not isinstance(bias, Tensor) or not bool(bias.any()):
        return None
    trailing = 0 if isinstance(layer, nn.Linear) else layer.weight.ndim - 2  # type: ignore[operator]
    return bias.detach().view(-1, *[1] * trailing)
