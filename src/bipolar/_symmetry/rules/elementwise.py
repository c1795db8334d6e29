"""Sign rules of functions that work element by element."""

from typing import Any

import torch
from torch import Tensor

from bipolar._activations.catalogue import of_plain_name
from bipolar._symmetry.recording import Recording
from bipolar._symmetry.rules.arguments import shrunk
from bipolar._symmetry.rules.refusal import refuse


def odd(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """f(-x) = -f(x): the output has the signs of the input."""
    recording.give_same(output, args[0])


def even(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """f(-x) = f(x): the output is the same whatever the signs of the input."""
    if recording.is_weight(args[0]) and output is not args[0]:
        return recording.give(output, recording.everywhere_plus(output))
    return recording.keeps_layout(output, recording.of(args[0]), "its output has the same sign whatever its input has")


def activation(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """An activation of the catalogue: odd, or not, with these options."""
    entry = of_plain_name(recording.nodes[-1].function)
    symmetric = entry is not None and entry.odd(**entry.options_of_call(args, kwargs))
    (odd if symmetric else refuse)(recording, args, kwargs, output)


def power(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Odd or even as its exponent is."""
    exponent = args[1] if len(args) > 1 else kwargs.get("exponent")
    if not isinstance(exponent, (int, float)) or exponent % 1:
        refuse(recording, args, kwargs, output)
    else:
        (odd if exponent % 2 else even)(recording, args, kwargs, output)


def create(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """A tensor with the shape and dtype of another, but not its values."""
    recording.give(output, recording.created(output))


def choose(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """torch.where takes either of two values, so both have the same signs."""
    values = [value for value in (*args, *kwargs.values()) if not _is_mask(value)]
    if len(values) == 2:
        add(recording, tuple(values), {}, output)
    else:
        refuse(recording, args, kwargs, output)


def _is_mask(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.bool


def add(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Both terms have the same signs; a number other than 0 has the sign +1."""
    unknowns = []
    for value in _operands(args, kwargs):
        if isinstance(value, Tensor):
            unknowns.append(_aligned(recording.of(value), output))
        elif value != 0:
            unknowns.append(recording.everywhere_plus(output))
    first, *others = unknowns
    for other in others:
        recording.constraints.equate(first, other, recording.node)
    recording.give(output, shrunk(torch.broadcast_tensors(*unknowns)[0]))


def multiply(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """The sign of a product, or of a quotient, is the product of the factors' signs; a factor of +1 changes nothing."""
    if kwargs.get("rounding_mode") is not None:
        return refuse(recording, args, kwargs, output)
    tensors = [value for value in _operands(args, kwargs) if isinstance(value, Tensor)]
    weights = [value for value in tensors if recording.is_weight(value)]
    if weights:
        return _scale(recording, tensors, weights, output)
    followed = [value for value in tensors if not recording.constraints.is_plus(recording.of(value))]
    if len(followed) > 1:
        a, b = (_aligned(recording.of(value), output) for value in followed)
        product = recording.constraints.fresh(*torch.broadcast_shapes(a.shape, b.shape))
        recording.constraints.multiply(a, b, product, recording.node)
        return recording.give(output, product)
    carrier = followed[0] if followed else max(tensors, key=lambda t: recording.of(t).numel())
    return recording.give(output, _aligned(recording.of(carrier), output))


def _scale(recording: Recording, tensors: list[Tensor], weights: list[Tensor], output: Tensor) -> None:
    """A weight that a signal is multiplied with keeps its sign; a weight times something positive is still a weight."""
    others = [value for value in tensors if not any(value is weight for weight in weights)]
    carrier = None
    if all(recording.constraints.is_plus(recording.of(value)) for value in others):
        whole = [weight for weight in weights if weight.shape == output.shape]
        carrier = max(whole, key=recording.is_trained, default=None)  # not a mask
    for weight in weights:
        if weight is not carrier:
            recording.keep_sign(weight, "a parameter that is multiplied with keeps its sign")
    if carrier is not None:
        return recording.give_same(output, carrier)
    carrier = max(others or weights, key=lambda t: recording.of(t).numel())
    return recording.give(output, _aligned(recording.of(carrier), output))


def _aligned(unknowns: Tensor, output: Tensor) -> Tensor:
    """Unknowns with as many dimensions as an output has."""
    return unknowns.view((1,) * (output.ndim - unknowns.ndim) + unknowns.shape)


def _operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return [*args[:2], *([kwargs["other"]] if "other" in kwargs else [])]
