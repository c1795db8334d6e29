"""Sign rules of layers with weights: a weight takes up the signs on its two sides.

The signs of a weight are a product of two factors, one along its first dimension and one along its second.
"""

import math
from typing import Any

import torch
from torch import Tensor

from bipolar._symmetry.recording import Recording, Tag
from bipolar._symmetry.rules.arguments import named
from bipolar._symmetry.rules.refusal import refuse, require_plus
from bipolar._symmetry.solver import PLUS

#: The most products of signs that a product of two signals may ask for: more would take long, and are not usual.
_MOST_PRODUCTS = 1_000_000


def matrix_signs(recording: Recording, weight: Tensor) -> Tag | None:
    """The signs of a matrix as factors of shape (rows, 1) and (1, columns), see :meth:`Recording.weight_of`."""
    fresh = recording.constraints.fresh
    return recording.weight_of(weight, lambda: (fresh(weight.size(0), 1), fresh(1, weight.size(1))))


def linear(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    x, weight, bias = named(args, kwargs, "input", "weight", "bias")
    tag = matrix_signs(recording, weight)
    _project(recording, x, weight, tag if tag is None or len(tag) != 2 else (tag[1].mT, tag[0].mT), bias, output)


def matmul(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    x, other = args[0], next((value for value in (*args[1:], *kwargs.values()) if isinstance(value, Tensor)), None)
    if other is not None and other.ndim == 2 and recording.is_weight(other):
        return _project(recording, x, other, matrix_signs(recording, other), None, output)
    if other is None or x.ndim < 2 or other.ndim < 2 or recording.is_weight(x) or recording.is_weight(other):
        return refuse(recording, args, kwargs, output)
    return _two_signals(recording, x, other, output)


def _two_signals(recording: Recording, x: Tensor, y: Tensor, output: Tensor) -> None:
    """A sum of products of two signals has the sign that its terms share."""
    rows, columns = recording.of(x).unsqueeze(-1), recording.of(y).unsqueeze(-3)
    shape = torch.broadcast_shapes(rows.shape, columns.shape)
    if math.prod(shape) > _MOST_PRODUCTS:
        return require_plus(recording, [x, y], output, "it multiplies two signals with too many different signs")
    product = recording.constraints.fresh(*shape[:-2], 1, shape[-1])
    recording.constraints.multiply(rows, columns, product, recording.node)
    return recording.give(output, product.squeeze(-2))


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
    constraints, node = recording.constraints, recording.node
    signs = recording.uniform(x, range(x.ndim - 1)).flatten()
    if tag is None or len(tag) != 2:  # a weight that is computed
        outward = constraints.fresh(output.size(-1))
        signs = signs.expand(x.size(-1))
        unknowns = recording.of(weight)
        if unknowns.ndim != 2:
            return require_plus(recording, [t for t in (x, weight, bias) if t is not None], output, NO_MATRIX)
        if recording.nodes[-1].function == "linear":
            unknowns = unknowns.mT
        _take_up(recording, unknowns[None, ..., None], signs.view(1, -1), outward.view(1, -1))
    else:
        inward, outward = tag  # of shape (in, 1) and (1, out)
        constraints.equate(signs, inward.flatten(), node)
    unknowns = outward.view((1,) * (output.ndim - 1) + (-1,))
    recording.give(output, unknowns)
    if bias is not None:
        recording.constraints.equate(recording.of(bias), unknowns.flatten(), recording.node)
    return None


NO_MATRIX = "its weight is not a matrix"


def _take_up(recording: Recording, weight: Tensor, inward: Tensor, outward: Tensor) -> None:
    """Ties the signs of a computed weight, of shape (groups, in, out, kernel), to those on its two sides.

    They are products of one along the inputs and one along the outputs, of shapes (groups, in) and (groups, out). Where
    all signs of the weight are the same along a dimension, its size may be 1.
    """
    constraints, node = recording.constraints, recording.node
    inward, outward = inward[:, :, None, None], outward[:, None, :, None]
    for dim in (3, 1, 2):  # along which all signs are the same, one equation says as much as many
        first = weight.narrow(dim, 0, 1)
        if bool((weight == first).all()):
            weight = first
            inward, outward = (constraints.uniform(side, [dim], node) for side in (inward, outward))
    constraints.multiply(inward, outward, weight, node)


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
    signs = recording.uniform(x, [d for d in range(x.ndim) if d != channel]).flatten()

    def factors() -> tuple[Tensor, Tensor]:
        by_group = recording.constraints.fresh(groups, 1, second).expand(groups, first // groups, second)
        return recording.constraints.fresh(first).view(-1, 1, *rest), by_group.reshape(first, second, *rest)

    tag = recording.weight_of(weight, factors)
    if tag is None or len(tag) != 2:  # a weight that is computed
        unknowns = recording.of(weight)
        unknowns = unknowns.expand(first, *unknowns.shape[1:])  # of which other dimensions may have size 1
        unknowns = unknowns.reshape(groups, first // groups, unknowns.size(1), -1)
        outputs = recording.constraints.fresh(output.size(channel))
        signs = signs.expand(x.size(channel))
        unknowns = unknowns if transposed else unknowns.transpose(1, 2)
        _take_up(recording, unknowns, signs.view(groups, -1), outputs.view(groups, -1))
    else:
        rows = tag[0].flatten()
        columns = tag[1].expand(first, second, *rest).flatten(1).view(groups, first // groups, second)
        columns = recording.constraints.uniform(columns, [1], recording.node).flatten()
        inputs, outputs = (rows, columns) if transposed else (columns, rows)
        recording.constraints.equate(signs, inputs, recording.node)
    recording.give(output, outputs.view((1,) * channel + (-1,) + (1,) * space))
    if bias is not None:
        recording.constraints.equate(recording.of(bias), outputs, recording.node)
    return None


def weight_norm(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """g v / |v| has the signs of v: its norm does not depend on them, and g keeps its own."""
    v, g = named(args, kwargs, "v", "g")
    recording.keep_sign(g, "a scale keeps its sign")
    recording.give_same(output, v)


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
    unknowns = recording.uniform(x, [d for d in range(x.ndim) if d != 1]).expand(
        *(x.size(1) if d == 1 else 1 for d in range(x.ndim))
    )
    for shift in (mean, bias):
        if shift is not None:
            recording.constraints.equate(recording.of(shift), unknowns.flatten(), recording.node)
    for scale in (variance, weight):
        if scale is not None:
            recording.plus(recording.of(scale), "a scale keeps its sign")
    recording.give(output, unknowns)


def group_norm(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """With one channel to a group, a batch norm without statistics; else as a layer norm."""
    x, groups, weight, bias = named(args, kwargs, "input", "num_groups", "weight", "bias")
    if groups == x.size(1):
        return batch_norm(recording, (x, None, None, weight, bias), {}, output)
    return _mean_over_channels(recording, x, weight, bias, output, (-1,) + (1,) * (x.ndim - 2))


def layer_norm(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    x, shape, weight, bias = named(args, kwargs, "input", "normalized_shape", "weight", "bias")
    _mean_over_channels(recording, x, weight, bias, output, tuple(shape))


def _mean_over_channels(
    recording: Recording, x: Tensor, weight: Tensor | None, bias: Tensor | None, output: Tensor, shape: tuple[int, ...]
) -> None:
    """(x - mean) / deviation * weight + bias: x keeps its signs, weight and bias can give the output any."""
    reason = "it takes a mean over channels"
    if weight is None:
        return require_plus(recording, [t for t in (x, bias) if t is not None], output, reason)
    recording.plus(recording.of(x), reason)
    unknowns = recording.of(weight)
    if bias is not None:
        recording.constraints.equate(unknowns, recording.of(bias), recording.node)
    return recording.give(output, unknowns.expand(weight.shape).reshape((1,) * (x.ndim - len(shape)) + shape))


def rms_norm(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Divides by a root mean square, which does not depend on signs."""
    x, _, weight = named(args, kwargs, "input", "normalized_shape", "weight")
    if weight is not None:
        recording.plus(recording.of(weight), "a scale keeps its sign")
    recording.give(output, recording.of(x))
