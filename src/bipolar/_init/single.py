"""LSUV of one linear or convolution layer, at the first use of its output."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from bipolar._init.channels import as_output, as_weight, bias_of, channel_dim, has_own_channels, is_transposed_linear
from bipolar._init.follow import is_activation
from bipolar._init.report import LSUVRow, kind_of
from bipolar._init.settings import ConstantInputError, Settings, scaled
from bipolar._init.solver import UnsolvableError, solve


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
        return cast(Tensor, input_of(self.args, self.kwargs))

    def call(self) -> Tensor:
        """The output of the layer with the weights that it has now."""
        return cast(Tensor, self.layer.forward(*self.args, **self.kwargs))


class Use(NamedTuple):
    """The first use of an output: the torch function, the same as an activation to measure after, and the channels of
    each part into which it splits the output."""

    func: Any = None
    activation: Callable[[Tensor], Tensor] | None = None
    parts: Sequence[Tensor] = ()


def input_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The input of a layer; all layers of torch call it ``input``."""
    return args[0] if args else kwargs.get("input", next(iter(kwargs.values())))


def has_free_bias(layer: nn.Module) -> bool:
    """Whether a layer has a bias that training may change."""
    bias = layer._parameters.get("bias")
    return bias is not None and bias.requires_grad


def scale_layer(settings: Settings, name: str, waiting: Pending, output: Tensor, use: Use) -> LSUVRow | None:
    """Scales a layer and overwrites its output; None, and it keeps its scale, if its input was constant."""
    layer, weights, meter = waiting.layer, settings.weights, settings.meter
    bias = bias_of(layer)
    linear = output if bias is None else output - bias
    overwritten = waiting.input._version != waiting.version
    start = weights.get(layer, "weight").clone()
    notes = []

    def measure(candidate: Tensor) -> float:
        return meter(candidate if use.activation is None else use.activation(waiting.view(candidate)))

    own_channels = has_own_channels(layer, start, output)
    before = None  # else as the solver finds it
    if use.parts or settings.per_channel or settings.centre:
        before = measure(scaled(linear, 1.0, bias))
    if use.parts and own_channels:
        notes.append(f"its {len(use.parts)} parts each by itself")
        if settings.orthogonal and not overwritten:
            start = _orthogonal_parts(settings, layer, start, use.parts)
            linear = waiting.call() if bias is None else waiting.call() - bias
    weight = start
    if own_channels and (settings.per_channel or use.parts):
        factors = _factors(settings, layer, linear, use.parts)
        linear, weight = linear * as_output(layer, factors), weight * as_weight(layer, factors, weight)
    elif settings.per_channel:
        notes.append("its channels share weights: one scale for all")
    old_bias = layer.bias.detach().clone() if isinstance(layer.bias, Tensor) else None
    shift: Tensor | None = None
    if settings.centre and is_activation(use.func):
        if own_channels and has_free_bias(layer):
            shift = -meter.channels(linear, channel_dim(layer))[0]
            linear, bias = linear + as_output(layer, shift), None
            notes.append("centred")
        else:
            notes.append("not centred: it has no bias that may change")

    def set_scale(scale: float) -> bool:
        fits = weights.set(layer, "weight", weight * scale)
        if fits and shift is not None:
            weights.set(layer, "bias", shift * scale)
        return fits

    def by_calling(scale: float) -> float:
        set_scale(scale)
        return measure(waiting.call())

    def unchanged(note: str) -> LSUVRow:
        return LSUVRow(name, kind_of(layer), before, before, 1.0, solution.rounds, at, note)

    at = use.func.__name__ if use.activation is not None else "output"
    try:
        solution = settings.solve(name, lambda scale: measure(scaled(linear, scale, bias)), linear, waiting.input)
    except ConstantInputError:
        return None
    before = solution.before if before is None else before
    if not set_scale(solution.scale):
        return unchanged("its parametrisation fixes the scale")
    if overwritten:
        output.copy_(scaled(linear, solution.scale, bias))
    else:
        # The output is linear in the weight, up to rounding next to a large bias, and unless a subclass does more.
        actual = waiting.call()
        copied = actual if use.activation is None else actual.clone()  # the activation may work in place
        solution = solution._replace(after=measure(copied))
        if abs(solution.after - 1) > settings.tol:
            try:
                solution = solve(by_calling, settings.tol, settings.max_iter)
            except UnsolvableError:
                weights.set(layer, "weight", start)
                if shift is not None and old_bias is not None:
                    weights.set(layer, "bias", old_bias)
                return unchanged("its output does not follow the scale of its weight")
            set_scale(solution.scale)
            actual = waiting.call()
        output.copy_(actual)
    weights.scaled.append((layer, "weight"))
    growth = solution.scale if weight is start else float((weight * solution.scale).norm() / start.norm())
    return LSUVRow(name, kind_of(layer), *solution._replace(before=before, scale=growth), at=at, note="; ".join(notes))


def _factors(settings: Settings, layer: nn.Module, linear: Tensor, parts: Sequence[Tensor]) -> Tensor:
    """One factor for each channel, which gives all channels, or all parts, the same size."""
    dim = channel_dim(layer)
    if settings.per_channel:
        _, sizes = settings.meter.channels(linear, dim)
    else:
        sizes = linear.new_empty(linear.size(dim))
        for part in parts:
            sizes[part] = settings.meter(linear.index_select(dim, part))
    return torch.where(sizes > 0, sizes, 1.0).rsqrt()


def _orthogonal_parts(settings: Settings, layer: nn.Module, weight: Tensor, parts: Sequence[Tensor]) -> Tensor:
    """Makes the weight of each part orthogonal by itself: they are layers of their own, stored as one."""
    fresh = weight.clone()
    rows = fresh.mT if is_transposed_linear(layer) else fresh
    for part in parts:
        rows[part] = settings.weights.orthogonal(rows[part])
    return fresh if settings.weights.set(layer, "weight", fresh) else weight
