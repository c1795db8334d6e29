"""LSUV of layers with several weights, which are scaled before they run: recurrent layers and attention."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from bipolar._init import attention, recurrent
from bipolar._init.channels import bias_of
from bipolar._init.report import LSUVRow, kind_of
from bipolar._init.settings import Settings, scaled
from bipolar._init.single import input_of
from bipolar._init.solver import Scaling
from bipolar._init.stacked import StackScaler
from bipolar._rnn.sequences import Sequences
from bipolar._rnn.stack import StackedRNN


def scale_composed(
    settings: Settings, name: str, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[LSUVRow]:
    """Scales the weights of a layer for the arguments that it is called with."""
    given = input_of(args, kwargs)
    if isinstance(layer, nn.MultiheadAttention):
        yield from _scale_attention(settings, name, layer, args, kwargs)
    elif isinstance(layer, recurrent.RECURRENT_LAYERS):
        yield from _scale_recurrent(settings, name, layer, given)
    elif isinstance(layer, StackedRNN):
        samples = _samples(layer, given, kwargs.get("lengths"))
        if samples is None:
            return  # the layer itself will refuse this input and say why
        yield from StackScaler(
            layer, f"{name}.", settings.meter, settings.weights, settings.tol, settings.max_iter
        ).run(samples)


def _samples(rnn: StackedRNN, input: Any, lengths: Any) -> Tensor | None:
    """The rows (samples, input_size) of the input of a stack, without padding; None if it is no input for it."""
    try:
        sequences = Sequences(input, lengths, None, rnn.input_size, rnn.batch_first)
    except (AttributeError, TypeError, ValueError):
        return None
    x = sequences.input
    return x.flatten(0, 1) if sequences.padding is None else x[~sequences.padding]


def scale_output_projection(
    settings: Settings, name: str, module: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> LSUVRow:
    """Scales ``out_proj`` of attention, whose q, k and v have been scaled: the output is linear in its weight."""
    projection, weights = module.out_proj, settings.weights
    if settings.orthogonal:
        weights.set(projection, "weight", weights.orthogonal(weights.get(projection, "weight")))
    output, bias = module.forward(*args, **kwargs)[0], bias_of(projection)
    linear = output if bias is None else output - bias
    solution = settings.solve(name, lambda scale: settings.meter(scaled(linear, scale, bias)), linear, output)
    weights.set(projection, "weight", weights.get(projection, "weight") * solution.scale)
    weights.scaled.append((projection, "weight"))
    return LSUVRow(name, kind_of(projection), *solution, at="output")


def _scale_attention(
    settings: Settings, name: str, module: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[LSUVRow]:
    """Gives q, k and v unit size, each by itself."""
    weights, solutions = settings.weights, dict[str, list[Scaling]]()
    for projection in attention.projections(module, args, kwargs):
        weight = weights.get(module, projection.weight).clone()
        if settings.orthogonal:
            weight[projection.rows] = weights.orthogonal(weight[projection.rows])
            weights.set(module, projection.weight, weight)
        linear, bias = attention.project(module, projection), projection.bias

        def statistic(scale: float, linear: Tensor = linear, bias: Tensor | None = bias) -> float:
            return settings.meter(scaled(linear, scale, bias))

        solution = settings.solve(f"{name}.{projection.weight}", statistic, linear, projection.input)
        weight[projection.rows] *= solution.scale
        weights.set(module, projection.weight, weight)
        solutions.setdefault(projection.weight, []).append(solution)
    for weight_name, found in solutions.items():
        before, after, scale, rounds = (sum(values) / len(found) for values in zip(*found, strict=True))
        note = "" if len(found) == 1 else "q, k and v each by itself"
        weights.scaled.append((module, weight_name))
        yield LSUVRow(
            f"{name}.{weight_name}", kind_of(module), before, after, scale, round(rounds), at="output", note=note
        )


def _scale_recurrent(settings: Settings, name: str, module: nn.Module, input: Any) -> Iterator[LSUVRow]:
    weights = settings.weights
    activation = recurrent.nonlinearity_of(module) if settings.after_activation else None
    for layer in recurrent.directed_layers(module, input):
        names = (layer.weight_ih, layer.weight_hh)
        if settings.orthogonal:
            for weight in names:
                like = weights.get(module, weight)
                weights.set(module, weight, weights.orthogonal(like, recurrent.gates_of(module)))
        vertical, horizontal = recurrent.preactivation(module, layer, weights.generator)
        balance = (settings.meter(vertical) / max(settings.meter(horizontal), 1e-30)) ** 0.5
        linear, bias = vertical + balance * horizontal, recurrent.bias(module, layer)

        def statistic(scale: float, linear: Tensor = linear, bias: Tensor | None = bias) -> float:
            gates = scaled(linear, scale, bias)
            return settings.meter(gates if activation is None else activation(gates))

        solution = settings.solve(f"{name}.{layer.weight_ih}", statistic, vertical, layer.input)
        for weight, factor in zip(names, (solution.scale, solution.scale * balance), strict=True):
            weights.set(module, weight, weights.get(module, weight) * factor)
            weights.scaled.append((module, weight))
            at = "gates" if activation is None else "relu"
            yield LSUVRow(f"{name}.{weight}", kind_of(module), *solution._replace(scale=factor), at=at)
