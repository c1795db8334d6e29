"""Sign rules of layers with weights: a weight takes up the signs on its two sides.

The signs of a weight are a product of two factors, one along its first dimension and one along its second.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bipolar._symmetry.recording import Recording, Tag
from bipolar._symmetry.rules.arguments import named
from bipolar._symmetry.rules.refusal import refuse, require_plus
from bipolar._symmetry.solver import PLUS


def matrix_signs(recording: Recording, weight: Tensor) -> Tag | None:
    """The signs of a matrix as factors of shape (rows, 1) and (1, columns), see :meth:`Recording.weight_of`."""
    fresh = recording.constraints.fresh
    return recording.weight_of(weight, lambda: (fresh(weight.size(0), 1), fresh(1, weight.size(1))))


def linear(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    x, weight, bias = named(args, kwargs, "input", "weight", "bias")
    tag = matrix_signs(recording, weight)
    _project(recording, x, weight, tag if tag is None or len(tag) != 2 else (tag[1].mT, tag[0].mT), bias, output)


def matmul(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    x, weight = named(args, kwargs, "input", "other")
    tag = matrix_signs(recording, weight) if weight.ndim == 2 else None
    if tag is None:
        return refuse(recording, args, kwargs, output)
    return _project(recording, x, weight, tag, None, output)


def addmm(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    bias, x, weight = named(args, kwargs, "input", "mat1", "mat2")
    _project(recording, x, weight, matrix_signs(recording, weight), bias, output)


def _project(
    recording: Recording,
    x: Tensor,
    weight: Tensor,
    tag: Tag | None,
    bias: Tensor | None,
    output: Tensor,
) -> None:
    """x W + b: the rows of W have the signs of x, its columns and b those of the output."""
    if tag is None or len(tag) != 2:
        return _computed_weight(recording, (x, weight, bias), output, output.ndim - 1)
    inward, outward = tag  # of shape (in, 1) and (1, out)
    signs = recording.constraints.uniform(recording.of(x), range(x.ndim - 1), recording.node)
    recording.constraints.equate(signs.flatten(), inward.flatten(), recording.node)
    unknowns = outward.view((1,) * (output.ndim - 1) + (-1,))
    recording.give(output, unknowns)
    if bias is not None:
        recording.constraints.equate(recording.of(bias), unknowns.flatten(), recording.node)
    return None


def _computed_weight(recording: Recording, given: Sequence[Tensor | None], output: Tensor, channel_dim: int) -> None:
    layout = torch.zeros([size if dim == channel_dim else 1 for dim, size in enumerate(output.shape)])
    tensors = [t for t in given if t is not None]
    require_plus(recording, tensors, output, "its weight is not a parameter, but computed", layout)


def convolve(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """The first dimension of a weight has the signs of the output and the second those of the input.

    In a transposed convolution it is the other way round. With several groups each has its own factor along the second.
    """
    function = recording.nodes[-1].function
    transposed, space = "transpose" in function, int(function[-2])
    x, weight, bias = named(args, kwargs, "input", "weight", "bias")
    groups = args[6] if len(args) > 6 else kwargs.get("groups", 1)
    first, second, rest = weight.size(0), weight.size(1), (1,) * space
    channel = x.ndim - space - 1
    signs = recording.constraints.uniform(
        recording.of(x), [d for d in range(x.ndim) if d != channel], recording.node
    ).flatten()

    def factors() -> tuple[Tensor, Tensor]:
        by_group = recording.constraints.fresh(groups, 1, second).expand(groups, first // groups, second)
        return recording.constraints.fresh(first).view(-1, 1, *rest), by_group.reshape(first, second, *rest)

    tag = recording.weight_of(weight, factors)
    if tag is None or len(tag) != 2:
        return _computed_weight(recording, (x, weight, bias), output, channel)
    rows = tag[0].flatten()
    columns = tag[1].expand(first, second, *rest).flatten(1).view(groups, first // groups, second)
    columns = recording.constraints.uniform(columns, [1], recording.node).flatten()
    inputs, outputs = (rows, columns) if transposed else (columns, rows)
    recording.constraints.equate(signs, inputs, recording.node)
    recording.give(output, outputs.view((1,) * channel + (-1,) + (1,) * space))
    if bias is not None:
        recording.constraints.equate(recording.of(bias), outputs, recording.node)
    return None


def embed(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """A row of the table is a symbol, so only its columns have signs."""
    _, weight = named(args, kwargs, "input", "weight")

    def factors() -> tuple[Tensor, Tensor]:
        return torch.full((weight.size(0), 1), PLUS), recording.constraints.fresh(1, weight.size(1))

    tag = recording.weight_of(weight, factors)
    if tag is None or len(tag) != 2:
        return refuse(recording, args, kwargs, output)
    rows, columns = tag
    recording.plus(rows, "a row of an embedding is a symbol's")
    recording.give(output, columns.view((1,) * (output.ndim - 1) + (-1,)))
    return None


def batch_norm(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """(x - mean) / deviation * weight + bias: mean and bias have the signs of x."""
    x, mean, variance, weight, bias = named(args, kwargs, "input", "running_mean", "running_var", "weight", "bias")
    unknowns = recording.constraints.uniform(
        recording.of(x), [d for d in range(x.ndim) if d != 1], recording.node
    ).expand(*(x.size(1) if d == 1 else 1 for d in range(x.ndim)))
    for shift in (mean, bias):
        if shift is not None:
            recording.constraints.equate(recording.of(shift), unknowns.flatten(), recording.node)
    for scale in (variance, weight):
        if scale is not None:
            recording.plus(recording.of(scale), "a scale keeps its sign")
    recording.give(output, unknowns)


def group_norm(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """With one channel to a group, a batch norm without statistics."""
    x, groups, weight, bias = named(args, kwargs, "input", "num_groups", "weight", "bias")
    if groups == x.size(1):
        return batch_norm(recording, (x, None, None, weight, bias), {}, output)
    return refuse(recording, args, kwargs, output)


def rms_norm(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Divides by a root mean square, which does not depend on signs."""
    x, _, weight = named(args, kwargs, "input", "normalized_shape", "weight")
    if weight is not None:
        recording.plus(recording.of(weight), "a scale keeps its sign")
    recording.give(output, recording.of(x))
