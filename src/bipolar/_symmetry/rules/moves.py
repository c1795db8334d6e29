"""Sign rules of functions that move values to other places: each value takes its sign along.

The rule applies the function itself to the unknowns in place of the values.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from bipolar._symmetry.recording import Recording
from bipolar._symmetry.rules.arguments import floats_in, shrunk
from bipolar._symmetry.rules.layers import matrix_signs
from bipolar._symmetry.rules.refusal import refuse, require_plus
from bipolar._symmetry.solver import PLUS
from bipolar._tools.nested import tensors_in


def move(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    if _transpose_weight(recording, args, output) or _reshape_weight(recording, args, kwargs, output):
        return
    if recording.nodes[-1].function.endswith("_as"):  # the second tensor gives its shape, and not its values
        shape = torch.empty((), dtype=torch.bool).expand((args[1] if len(args) > 1 else kwargs["other"]).shape)
        args, kwargs = (args[0], shape), {}
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    if any(recording.is_derived(t) for t in tensors):  # a signal decides where values go
        refuse(recording, args, kwargs, output)
        return
    if any(recording.may_differ(t) or (recording.is_input(t) and not t.is_floating_point()) for t in tensors):
        _equate_choices(recording, args, kwargs)
    places = _moved_unknowns(recording, args, kwargs)
    for tensor in tensors:
        if recording.is_own(tensor) and tensor.is_floating_point():
            _equate_rest(recording, tensor, places)
    for made, unknowns in zip(floats_in(output), places, strict=True):
        recording.give(made, shrunk(unknowns))


def pad(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Padding with a constant; other modes repeat values, and so move them."""
    values = dict(zip(("input", "pad", "mode", "value"), args, strict=False)) | kwargs
    if values.get("mode", "constant") != "constant":
        return move(recording, args, kwargs, output)
    x = values["input"]
    widths = list(values["pad"])
    sides = [any(widths[2 * i : 2 * i + 2]) for i in range(len(widths) // 2)][::-1]  # from the last dimension on
    touched = [False] * (x.ndim - len(sides)) + sides
    unknowns = recording.of(x)
    unknowns = unknowns.expand([max(a, b * c) for a, b, c in zip(unknowns.shape, x.shape, touched, strict=True)])
    padded = nn.functional.pad(unknowns.to(torch.float64), widths, value=-1).long()
    new = padded == -1
    padded[new] = PLUS if values.get("value") else recording.constraints.fresh(int(new.sum()))  # zero has any sign
    recording.give(output, shrunk(padded))
    return None


def pack(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Sequences packed, or padded with zeros again: all of them have the signs of their features."""
    x, made = args[0], output[0]
    nonzero = recording.nodes[-1].function == "_pad_packed_sequence" and args[3] != 0
    if nonzero or min(x.ndim, made.ndim) < 2:
        return refuse(recording, args, kwargs, output)
    signs = recording.uniform(x, range(x.ndim - 1))
    recording.give(made, signs.view((1,) * (made.ndim - 1) + (-1,)))
    return None


def write(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """x[index] = value: zeros have any sign; for other values x has the signs +1."""
    x, _, value = args
    if isinstance(value, Tensor) or value != 0:
        require_plus(recording, list(floats_in((x, value))), None, "values are written into it")
    recording.give(x, recording.of(x))


def _transpose_weight(recording: Recording, args: tuple[Any, ...], output: Any) -> bool:
    """Swaps the two factors of a weight's signs if the function transposes it, for a product with it later on."""
    transposed = recording.nodes[-1].function in ("t", "T", "mT", "transpose")
    if not transposed or args[0].ndim != 2 or not (recording.is_own(args[0]) or recording.is_product(args[0])):
        return False
    tag = matrix_signs(recording, args[0])
    if tag is None or len(tag) != 2:
        return False
    recording.give(output, tag[1].mT, tag[0].mT)
    return True


#: Functions that give all values another place, and leave none out.
_RESHAPES = frozenset(
    (
        *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "ravel", "view_as", "reshape_as"),
        *("transpose", "t", "T", "mT", "swapaxes", "swapdims", "permute", "movedim", "moveaxis"),
    )
)


def _reshape_weight(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> bool:
    """Leaves the signs of a weight open until it is used, if the function only gives it another shape."""
    if recording.nodes[-1].function not in _RESHAPES or not recording.is_weight(args[0]):
        return False
    if recording.is_product(args[0]):
        return False
    function, shape, rest = recording.function, args[0].shape, args[1:]

    def moved(unknowns: Tensor) -> Tensor:
        return shrunk(function(unknowns.expand(shape).contiguous(), *rest, **kwargs))

    recording.give_same(output, args[0], moved)
    return True


def _moved_unknowns(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The outputs of the present function if it is given unknowns for values."""

    def unknowns(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return recording.of(value).to(torch.float64).expand(value.shape).contiguous()  # some take no integers
        return value

    moved = recording.function(*tree_map(unknowns, args), **tree_map(unknowns, kwargs))
    return [places.long() for places in tensors_in(moved)]


def _equate_choices(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Equates signs along the dimensions in which indices choose, because another input may choose others."""
    for dim in _chosen_dims(recording.nodes[-1].function, args, kwargs):
        unknowns = recording.of(args[0])
        recording.constraints.equate(unknowns, unknowns.narrow(dim, 0, 1), recording.node)


def _chosen_dims(function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """The dimensions of a tensor along which a tensor of indices chooses."""
    x = args[0]
    if function != "__getitem__":  # gather, index_select, take_along_dim: (x, dim, index), or the dimension by name
        dim = kwargs.get("dim", next((a for a in args[1:] if isinstance(a, int)), None))
        return list(range(x.ndim)) if dim is None else [dim % x.ndim]
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    taken = sum(_dims_of(i) for i in index if i is not None and i is not Ellipsis)
    dims, place = [], 0
    for i in index:
        if i is Ellipsis:
            place += x.ndim - taken
        elif i is not None:
            if isinstance(i, Tensor):
                dims += list(range(place, place + _dims_of(i)))
            place += _dims_of(i)
    return dims


def _dims_of(index: Any) -> int:
    """The number of dimensions that an index takes up: a mask takes all of its own."""
    return index.ndim if isinstance(index, Tensor) and index.dtype == torch.bool else 1


def _equate_rest(recording: Recording, parameter: Tensor, places: Sequence[Tensor]) -> None:
    """Equates signs along the dimensions of a table that is used in part, because another input may use another part.

    A table of positions is one.
    """
    unknowns = recording.of(parameter).expand(parameter.shape)
    used = torch.zeros(recording.constraints.unknowns, dtype=torch.bool)
    for where in places:
        used[where] = True
    used = used[unknowns]
    for dim in range(parameter.ndim):
        others = [d for d in range(parameter.ndim) if d != dim]
        reached = used.sum(others) if others else used
        if not bool((reached > 0).all()):
            recording.constraints.uniform(unknowns, [dim], recording.node)
