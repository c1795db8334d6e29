"""The forward pass of LSUV, in which each layer is scaled at the first use of its output."""

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bipolar._init import recurrent
from bipolar._init.follow import as_activation, as_function, is_identity, is_metadata, is_reshape, shares_memory
from bipolar._init.meter import Meter
from bipolar._init.report import LSUVError, LSUVRow
from bipolar._init.selection import RECURRENT
from bipolar._init.solver import Scaling, UnsolvableError, solve
from bipolar._init.stacked import StackScaler
from bipolar._init.weights import WeightSetter
from bipolar._rnn.stack import StackedRNN
from bipolar._tools.nested import tensors_in


class Pending(NamedTuple):
    """A layer that has run and whose output has not been used yet."""

    output: Callable[[], Tensor | None]  # a weak reference: the network decides how long an output lives
    layer: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    version: int
    whole: Tensor | None = None  # the layer's own output, where ``output`` is a view of it
    view: Callable[[Tensor], Tensor] = lambda whole: whole  # from the layer's own output to ``output``

    @property
    def input(self) -> Tensor:
        return cast(Tensor, _input(self.args, self.kwargs))


class SequentialPass(TorchFunctionMode):
    """Watches the calls of layers, by hooks, and of torch functions, by this mode, during one forward pass.

    Args:
        layers: the layers to scale, with their names
        notes: the layers that keep their weights, with the reason
        meter: measures
        weights: sets weights
        after_activation: whether to measure after an activation that directly follows a layer
        orthogonal: whether to start from orthogonal weights
        tol, max_iter: for the solver
    """

    def __init__(
        self,
        layers: dict[nn.Module, str],
        notes: dict[nn.Module, str],
        meter: Meter,
        weights: WeightSetter,
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
        weights = [p for name, p in layer._parameters.items() if p is not None and name.startswith("weight")]
        self._settle(layer, weights)
        self.calls[layer] += 1
        if self.calls[layer] > 1:
            return
        name = self.layers[layer]
        tied = [self.owner[id(weight)] for weight in weights if id(weight) in self.owner]
        if tied and layer not in self.notes:
            self.notes[layer] = f"tied to {tied[0]!r}"
        if layer in self.notes:
            self._add(LSUVRow(name, _kind(layer), note=self.notes[layer]))
            return
        self.owner |= {id(weight): name for weight in weights}
        if isinstance(layer, StackedRNN):
            given = _input(args, kwargs)
            if not isinstance(given, Tensor) or given.ndim == 0 or given.size(-1) != layer.input_size:
                return  # the layer itself will refuse this input and say why
            samples = given.reshape(-1, layer.input_size)
            scaler = StackScaler(layer, f"{name}.", self.meter, self.weights, self.tol, self.max_iter)
            for row in scaler.run(samples):
                self._add(row)
            return
        if isinstance(layer, recurrent.RECURRENT_LAYERS):
            self._scale_recurrent(name, layer, _input(args, kwargs))
            return
        self._add(LSUVRow(name, _kind(layer)))  # reserves its place in the order of execution
        if self.orthogonal:
            self.start[layer] = self.weights.get(layer, "weight").clone()
            self.weights.set(layer, "weight", self.weights.orthogonal(self.start[layer]))

    def _after_layer(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        if self.calls[layer] == 1 and layer not in self.notes and not isinstance(layer, RECURRENT):
            version = _input(args, kwargs)._version
            self.pending[id(output)] = Pending(weakref.ref(output), layer, args, kwargs, version)

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
            activation = as_activation(func, args, kwargs, tensor) if self.after_activation else None
            self._scale(waiting, tensor, activation, func.__name__ if activation else "output")
        return func(*args, **kwargs)

    def finish(self, result: Any) -> None:
        """Scales, after the forward pass, the layers whose outputs are in the ``result`` of the network."""
        own = {id(tensor) for tensor in tensors_in(result)}
        for key, waiting in list(self.pending.items()):
            output = waiting.output()
            if output is not None and id(output) in own and key in self.pending:
                self._scale(waiting, output, None, "output")
        for layer, name in self.layers.items():
            if not self.calls[layer]:
                self._add(LSUVRow(name, _kind(layer), note="never called"))
                continue
            for row in [row for row in self.rows.values() if row.name == name or row.name.startswith(f"{name}.weight")]:
                if row.before is None and not row.note:
                    # its output was thrown away, or used where no torch function shows it, as in TorchScript
                    if layer in self.start:
                        self.weights.set(layer, "weight", self.start[layer])
                    self._add(replace(row, note="its output was not seen in use"))
                elif self.calls[layer] > 1 and not row.note:
                    self._add(replace(row, note=f"called {self.calls[layer]} times, scaled at the first"))

    def _settle(self, layer: nn.Module, weights: Sequence[Tensor]) -> None:
        """Scales a layer that still waits for the first use of its output before its weight is used a second time."""
        shared = {id(weight) for weight in weights}
        for key, waiting in list(self.pending.items()):
            output = waiting.output()
            if waiting.layer is layer or id(waiting.layer._parameters.get("weight")) in shared:
                if output is not None and key in self.pending:
                    self._scale(waiting, output, None, "output")
                self.pending.pop(key, None)

    def _scale(self, waiting: Pending, output: Tensor, activation: Callable[[Tensor], Tensor] | None, at: str) -> None:
        layer, name = waiting.layer, self.layers[waiting.layer]
        self.pending = {key: other for key, other in self.pending.items() if other.layer is not layer}
        output = output if waiting.whole is None else waiting.whole
        bias = _broadcast_bias(layer)
        linear = output if bias is None else output - bias
        weight = self.weights.get(layer, "weight").clone()

        def measure(candidate: Tensor) -> float:
            return self.meter(candidate if activation is None else activation(waiting.view(candidate)))

        def by_scaling(scale: float) -> float:
            return measure(_scaled(linear, scale, bias))

        def by_calling(scale: float) -> float:
            self.weights.set(layer, "weight", weight * scale)
            return measure(layer.forward(*waiting.args, **waiting.kwargs))

        def unchanged(note: str) -> LSUVRow:
            return LSUVRow(name, _kind(layer), solution.before, solution.before, 1.0, solution.rounds, at, note)

        solution = self._solve(name, by_scaling, linear, waiting.input)
        if not self.weights.set(layer, "weight", weight * solution.scale):
            self._add(unchanged("its parametrisation fixes the scale"))
            return
        if waiting.input._version == waiting.version:  # else the input of the layer has been overwritten
            # The output is linear in the weight, up to rounding next to a large bias, and unless a subclass does more.
            actual = layer.forward(*waiting.args, **waiting.kwargs)
            copied = actual if activation is None else actual.clone()  # the activation may work in place
            solution = solution._replace(after=measure(copied))
            if abs(solution.after - 1) > self.tol:
                try:
                    solution = solve(by_calling, self.tol, self.max_iter)
                except UnsolvableError:
                    self.weights.set(layer, "weight", weight)
                    self._add(unchanged("its output does not follow the scale of its weight"))
                    return
                self.weights.set(layer, "weight", weight * solution.scale)
                actual = layer.forward(*waiting.args, **waiting.kwargs)
            output.copy_(actual)
        else:
            output.copy_(_scaled(linear, solution.scale, bias))
        self._add(LSUVRow(name, _kind(layer), *solution, at=at))

    def _scale_recurrent(self, name: str, module: nn.Module, input: Any) -> None:
        activation = recurrent.nonlinearity_of(module) if self.after_activation else None
        for layer in recurrent.directed_layers(module, input):
            names = (layer.weight_ih, layer.weight_hh)
            if self.orthogonal:
                for weight in names:
                    like = self.weights.get(module, weight)
                    self.weights.set(module, weight, self.weights.orthogonal(like, recurrent.gates_of(module)))
            vertical, horizontal = recurrent.preactivation(module, layer, self.weights.generator)
            balance = (self.meter(vertical) / max(self.meter(horizontal), 1e-30)) ** 0.5
            linear, bias = vertical + balance * horizontal, recurrent.bias(module, layer)

            def statistic(scale: float, linear: Tensor = linear, bias: Tensor | None = bias) -> float:
                gates = _scaled(linear, scale, bias)
                return self.meter(gates if activation is None else activation(gates))

            solution = self._solve(f"{name}.{layer.weight_ih}", statistic, vertical, layer.input)
            for weight, factor in zip(names, (solution.scale, solution.scale * balance), strict=True):
                self.weights.set(module, weight, self.weights.get(module, weight) * factor)
                solved = solution._replace(scale=factor)
                at = "gates" if activation is None else "relu"
                self._add(LSUVRow(f"{name}.{weight}", _kind(module), *solved, at=at))

    def _solve(self, name: str, statistic: Callable[[float], float], linear: Tensor, input: Tensor) -> Scaling:
        size = self.meter(linear)
        if size == 0:
            constant = bool((input == input.flatten()[0]).all())
            raise LSUVError(
                f"layer {name!r}: its output has no {self._target}, because its input has none; "
                "the samples of the batch have to differ"
                if constant
                else f"layer {name!r} is dead: its weight makes the same of every input; "
                "give it another one, or exclude it"
            )
        try:
            return solve(statistic, self.tol, self.max_iter)
        except UnsolvableError as error:
            if not bool(torch.isfinite(input).all()):
                raise LSUVError(f"layer {name!r}: there is NaN or infinity in its input") from None
            raise LSUVError(f"layer {name!r}: its {self._target} {error}") from None

    @property
    def _target(self) -> str:
        return self.meter.target.replace("_", " ")

    def _add(self, row: LSUVRow) -> None:
        self.rows[row.name] = row


def _input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The input of a layer; all layers of torch call it ``input``."""
    return args[0] if args else kwargs.get("input", next(iter(kwargs.values())))


def _kind(layer: nn.Module) -> str:
    return type(layer).__name__.removeprefix("Parametrized")


def _scaled(linear: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    return linear * scale if bias is None else linear * scale + bias


def _then(first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: second(first(x))


def _broadcast_bias(layer: nn.Module) -> Tensor | None:
    """The bias in a shape that adds to the layer's output; None if it has none, or only zeros."""
    bias = layer.bias
    if not isinstance(bias, Tensor) or not bool(bias.any()):
        return None
    if isinstance(layer, nn.Linear):
        return bias.detach()
    convolution = cast(nn.Conv2d, layer)
    bias = bias.detach().repeat_interleave(convolution.out_channels // bias.numel())  # may serve several channels
    return bias.view(-1, *[1] * len(convolution.kernel_size))
