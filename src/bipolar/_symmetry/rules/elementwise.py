"""Sign rules of functions that work element by element."""

from typing import Any

import torch
from torch import Tensor

from bipolar._activations.catalogue import of_plain_name
from bipolar._symmetry.recording import Recording
from bipolar._symmetry.rules.arguments import shrunk
from bipolar._symmetry.rules.refusal import refuse, require_plus


def odd(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """f(-x) = -f(x): the output has the signs of the input."""
    recording.give(output, recording.of(args[0]))


def even(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """f(-x) = f(x): the output is the same whatever the signs of the input."""
    recording.keeps_layout(output, recording.of(args[0]), "its output has the same sign whatever its input has")


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
            own = recording.of(value)
            unknowns.append(own.view((1,) * (output.ndim - own.ndim) + own.shape))
        elif value != 0:
            unknowns.append(recording.everywhere_plus(output))
    first, *others = unknowns
    for other in others:
        recording.constraints.equate(first, other, recording.node)
    recording.give(output, shrunk(torch.broadcast_tensors(*unknowns)[0]))


def multiply(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """The product of a signal and factors with the sign +1 has the signal's signs; two signals are not followed."""
    if kwargs.get("rounding_mode") is not None:
        return refuse(recording, args, kwargs, output)
    values = _operands(args, kwargs)
    tensors = [value for value in values if isinstance(value, Tensor)]
    followed = []
    for value in tensors:
        if recording.is_own(value):
            recording.plus(recording.of(value), "a parameter that is multiplied with keeps its sign")
        elif not recording.constraints.is_plus(recording.of(value)):
            followed.append(value)
    divides = recording.nodes[-1].function.startswith(("div", "true_div", "__truediv__"))
    if len(followed) > 1 or (divides and followed and followed[0] is not values[0]):
        return require_plus(recording, followed, output, "it multiplies two signals")
    carrier = followed[0] if followed else max(tensors, key=lambda t: recording.of(t).numel())
    unknowns = recording.of(carrier)
    recording.give(output, unknowns.view((1,) * (output.ndim - unknowns.ndim) + unknowns.shape))
    return None


def _operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return [*args[:2], *([kwargs["other"]] if "other" in kwargs else [])]
