"""Channel dimension of an activation, from the dimension along which the signs of its inputs may vary."""

from collections.abc import Sequence

from bipolar._symmetry.recording import ActivationCall


def channel_dim(calls: Sequence[ActivationCall]) -> int | None:
    """The dimension of the channels, for all calls of an activation; None if it is not known.

    -1 after a linear layer, 1 after a convolution, and any that fits elsewhere.
    """
    known = _known_dims(calls)
    common = set.intersection(*known) if len(known) == len(calls) else set()
    return next((dim for dim in (-1, 1, *sorted(common, reverse=True)) if dim in common), None)


def channel_dims_differ(calls: Sequence[ActivationCall]) -> bool:
    """Whether the channels are in one dimension at one call, and in another at another."""
    known = _known_dims(calls)
    return bool(known) and not set.intersection(*known)


def _known_dims(calls: Sequence[ActivationCall]) -> list[set[int]]:
    """For each call whose signs may vary along one dimension, this dimension counted from the front and the back."""
    found = []
    for call in calls:
        dims = [dim for dim, size in enumerate(call.unknowns.shape) if size > 1]
        if len(dims) == 1:
            found.append({dims[0], dims[0] - len(call.shape)})
    return found
