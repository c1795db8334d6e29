"""Sign rules of means, variances and pooling: the signs are the same along the dimensions that are reduced."""

import re
from typing import Any

from bipolar._symmetry.recording import Recording
from bipolar._symmetry.rules.refusal import refuse


def average(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """A mean or sum has the signs that its terms share."""
    x = args[0]
    dims = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis"))
    if dims is None or isinstance(dims, bool) or dims in ((), []):
        dims = range(x.ndim)
    chosen = [d % x.ndim for d in ([dims] if isinstance(dims, int) else dims)]
    unknowns = recording.uniform(x, chosen)
    if output.ndim != x.ndim:
        for dim in sorted(chosen, reverse=True):
            unknowns = unknowns.squeeze(dim)
    recording.give(output, unknowns)


def variance(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """A variance or deviation is the same whatever sign its terms share."""
    average(recording, args, kwargs, output)
    recording.give(output, recording.everywhere_plus(output))


def variance_and_mean(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """A variance or deviation, and a mean."""
    spread, mean = output
    average(recording, args, kwargs, mean)
    recording.give(spread, recording.everywhere_plus(spread))


def norm(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """The norm of vectors is the same whatever the signs of their elements."""
    order = args[1] if len(args) > 1 else kwargs.get("p", kwargs.get("ord"))
    dims = args[2] if len(args) > 2 else kwargs.get("dim")
    # linalg.norm takes a number for the norm of a matrix, if there are two dimensions
    matrix = recording.nodes[-1].function == "linalg_norm" and not isinstance(dims, int)
    if order in (None, "fro") or (isinstance(order, (int, float)) and not matrix):
        return recording.give(output, recording.everywhere_plus(output))
    return refuse(recording, args, kwargs, output)


def pool(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Average pooling and interpolation are linear, channel by channel, over the dimensions after the channels."""
    x = args[0]
    space = re.search(r"(\d)d$", recording.nodes[-1].function)
    count = int(space[1]) if space else x.ndim - 2
    unknowns = recording.uniform(x, range(x.ndim - count, x.ndim))
    recording.give(output, unknowns)
