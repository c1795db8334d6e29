"""LSUV of :class:`torch.nn.MultiheadAttention`, which uses its projections without calling a layer."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch.nn.functional as tF
from torch import Tensor, nn

_NAMES = ("query", "key", "value")


class Projection(NamedTuple):
    """The projection of one input: its weight by name, the rows of it, its input and bias."""

    weight: str
    rows: slice
    input: Tensor
    bias: Tensor | None


def projections(
    attention: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[Projection]:
    """The projections of query, key and value."""
    inputs = dict(zip(_NAMES, args, strict=False)) | kwargs
    width = attention.embed_dim
    for i, name in enumerate(_NAMES):
        part = slice(i * width, (i + 1) * width)
        biases: Tensor | None = attention.in_proj_bias
        bias = None if biases is None or not bool(biases.any()) else biases.detach()[part]
        if attention._qkv_same_embed_dim:
            yield Projection("in_proj_weight", part, inputs[name], bias)
        else:
            yield Projection(f"{name[0]}_proj_weight", slice(None), inputs[name], bias)


def project(attention: nn.MultiheadAttention, projection: Projection) -> Tensor:
    """W x of one projection."""
    weight: Tensor = getattr(attention, projection.weight)
    return tF.linear(projection.input, weight.detach()[projection.rows])
