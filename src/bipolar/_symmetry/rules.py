"""What torch functions do to signs, each by its name.

With s the signs of a tensor x, a function f commutes with them if f(s x) = s' f(x) for some signs s' of its output.
Many functions do where the signs are the same along some dimensions, or for two inputs. All others ask for +1.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from bipolar._symmetry.solver import PLUS
from bipolar._tools.nested import tensors_in

if TYPE_CHECKING:
    from bipolar._symmetry.trace import Recording

Rule: TypeAlias = Callable[["Recording", tuple[Any, ...], dict[str, Any], Any], None]


def rule_for(name: str) -> Rule:
    return _RULES.get(name, unknown)


def unknown(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Anything else: everything that goes in has to be as it is."""
    name = recording.nodes[-1].function
    reason = next((why for pattern, why in _REASONS if re.match(pattern, name)), f"{name} is not known to keep signs")
    ask_for_plus(recording, list(_floats((args, kwargs))), output, reason)


def ask_for_plus(
    recording: "Recording", given: Sequence[Tensor], output: Any, reason: str, layout: Tensor | None = None
) -> None:
    """What goes in and what comes out has to be as it is; ``layout`` tells where the channels of the output are."""
    unknowns = [recording.of(tensor) for tensor in given]
    for some in unknowns:
        recording.plus(some, reason)
    if layout is None and all((some == PLUS).all() for some in unknowns):  # from outside, and so is what comes of it
        for made in _floats(output):
            recording.give(made, recording.everywhere_plus(made))
        return
    for made in _floats(output):
        recording.keeps_layout(made, unknowns[0] if layout is None else layout, reason)


def _passes(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """An odd function of one tensor, element by element."""
    recording.give(output, recording.of(args[0]))


def _passes_if_odd(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """A hardtanh between bounds of the same size."""
    _, low, high = _named(args, kwargs, "input", "min_val", "max_val")
    odd = (-1.0 if low is None else low) == -(1.0 if high is None else high)
    (_passes if odd else unknown)(recording, args, kwargs, output)


def _creates(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Takes its shape and dtype from a tensor, but no values."""
    recording.give(output, recording.created(output))


def _chooses(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """torch.where: one or the other, so both have the same signs."""
    values = [value for value in (*args, *kwargs.values()) if not _is_mask(value)]
    if len(values) == 2:
        _adds(recording, tuple(values), {}, output)
    else:
        unknown(recording, args, kwargs, output)


def _even(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    recording.keeps_layout(output, recording.of(args[0]), "its output has the same sign whatever its input has")


def _power(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    exponent = args[1] if len(args) > 1 else kwargs.get("exponent")
    if not isinstance(exponent, (int, float)) or exponent % 1:
        unknown(recording, args, kwargs, output)
    elif exponent % 2:
        _passes(recording, args, kwargs, output)
    else:
        _even(recording, args, kwargs, output)


def _moves(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Values change their places, and their signs go with them: the function itself says where."""
    function = recording.current
    transposed = recording.nodes[-1].function in ("t", "T", "mT", "transpose")
    if transposed and recording.is_own(args[0]) and args[0].ndim == 2:  # a weight, to be multiplied with
        weight = args[0]
        tag = recording.weight_of(weight, lambda: _outer(recording, weight.shape))
        if tag is not None and len(tag) == 2:
            recording.give(output, tag[1].mT, tag[0].mT)
            return
    leaves = tree_leaves((args, kwargs))
    if any(recording.is_derived(t) for t in leaves):  # where to depends on a signal
        unknown(recording, args, kwargs, output)
        return
    if any(recording.may_differ(t) or (recording.is_input(t) and not t.is_floating_point()) for t in _tensors(leaves)):
        for dim in _chosen_dims(recording.nodes[-1].function, args, kwargs):  # others may be chosen another time
            recording.constraints.equate(recording.of(args[0]), recording.of(args[0]).narrow(dim, 0, 1), recording.node)

    def unknowns(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return recording.of(value).to(torch.float64).expand(value.shape).contiguous()  # some take no integers
        return value

    moved = function(*tree_map(unknowns, args), **tree_map(unknowns, kwargs))
    places = [where.long() for where in tensors_in(moved)]
    for value in _tensors(leaves):
        if recording.is_own(value) and value.is_floating_point():
            _tie_what_is_cut(recording, value, places)
    for made, where in zip(_floats(output), places, strict=True):
        recording.give(made, _shrunk(where))


def _chosen_dims(function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """The dimensions of a tensor along which a tensor of indices chooses."""
    x = args[0]
    if function != "__getitem__":  # gather, index_select, take_along_dim: (x, dim, index), or the dimension by name
        dim = kwargs.get("dim", next((a for a in args[1:] if isinstance(a, int)), None))
        return list(range(x.ndim)) if dim is None else [dim % x.ndim]
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    taken = sum(i.ndim if _is_mask(i) else 1 for i in index if i is not None and i is not Ellipsis)
    dims, place = [], 0
    for i in index:
        if i is Ellipsis:
            place += x.ndim - taken
        elif i is not None:
            size = i.ndim if _is_mask(i) else 1
            if isinstance(i, Tensor):
                dims += list(range(place, place + size))
            place += size
    return dims


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype == torch.bool


def _tie_what_is_cut(recording: "Recording", parameter: Tensor, places: Sequence[Tensor]) -> None:
    """Of a table that is used in part, such as one of positions, another part may be used another time."""
    unknowns = recording.of(parameter).expand(parameter.shape)
    used = torch.isin(unknowns, torch.cat([where.flatten() for where in places]))
    for dim in range(parameter.ndim):
        others = [d for d in range(parameter.ndim) if d != dim]
        reached = used.sum(others) if others else used
        if not bool((reached > 0).all()):
            recording.constraints.uniform(unknowns, [dim], recording.node)


def _pads(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    values = dict(zip(("input", "pad", "mode", "value"), args, strict=False)) | kwargs
    if values.get("mode", "constant") != "constant":
        return _moves(recording, args, kwargs, output)
    x = values["input"]
    pad = list(values["pad"])
    sides = [any(pad[2 * i : 2 * i + 2]) for i in range(len(pad) // 2)][::-1]  # from the last dimension on
    touched = [False] * (x.ndim - len(sides)) + sides
    unknowns = recording.of(x)
    unknowns = unknowns.expand([max(a, b * c) for a, b, c in zip(unknowns.shape, x.shape, touched, strict=True)])
    padded = nn.functional.pad(unknowns.to(torch.float64), pad, value=-1).long()
    new = padded == -1
    padded[new] = PLUS if values.get("value") else recording.constraints.fresh(int(new.sum()))  # zero has any sign
    recording.give(output, _shrunk(padded))
    return None


def _adds(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """The signs of the two have to be equal; a number other than 0 has the sign +1."""
    values = [*args[:2], *([kwargs["other"]] if "other" in kwargs else [])]
    unknowns = []
    for value in values:
        if isinstance(value, Tensor):
            own = recording.of(value)
            unknowns.append(own.view((1,) * (output.ndim - own.ndim) + own.shape))
        elif value != 0:
            unknowns.append(recording.everywhere_plus(output))
    first, *others = unknowns
    for other in others:
        recording.constraints.equate(first, other, recording.node)
    recording.give(output, _shrunk(torch.broadcast_tensors(*unknowns)[0]))


def _multiplies(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """A factor of sign +1 changes nothing, and a parameter is left as it is; x times y is not followed."""
    if kwargs.get("rounding_mode") is not None:
        return unknown(recording, args, kwargs, output)
    values = [*args[:2], *([kwargs["other"]] if "other" in kwargs else [])]
    tensors = [value for value in values if isinstance(value, Tensor)]
    followed = []
    for value in tensors:
        if recording.is_own(value):
            recording.plus(recording.of(value), "a parameter that is multiplied with keeps its sign")
        elif not recording.constraints.is_plus(recording.of(value)):
            followed.append(value)
    divides = recording.nodes[-1].function.startswith(("div", "true_div", "__truediv__"))
    if len(followed) > 1 or (divides and followed and followed[0] is not values[0]):
        return ask_for_plus(recording, followed, output, "it multiplies two signals")
    carrier = followed[0] if followed else max(tensors, key=lambda t: recording.of(t).numel())
    unknowns = recording.of(carrier)
    recording.give(output, unknowns.view((1,) * (output.ndim - unknowns.ndim) + unknowns.shape))
    return None


def _averages(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """A sum over dimensions along which the signs have to be the same."""
    x = args[0]
    dims = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis"))
    if dims is None or isinstance(dims, bool) or dims in ((), []):
        dims = range(x.ndim)
    chosen = [d % x.ndim for d in ([dims] if isinstance(dims, int) else dims)]
    unknowns = recording.constraints.uniform(recording.of(x), chosen, recording.node)
    if output.ndim != x.ndim:
        for dim in sorted(chosen, reverse=True):
            unknowns = unknowns.squeeze(dim)
    recording.give(output, unknowns)


def _spreads(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """A variance: it does not see a sign that is the same for all it is taken over."""
    _averages(recording, args, kwargs, output)
    recording.give(output, recording.everywhere_plus(output))


def _over_space(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """Linear, channel by channel, over the dimensions after the channels."""
    x = args[0]
    space = re.search(r"(\d)d$", recording.nodes[-1].function)
    count = int(space[1]) if space else x.ndim - 2
    unknowns = recording.constraints.uniform(recording.of(x), range(x.ndim - count, x.ndim), recording.node)
    recording.give(output, unknowns)


def _linear(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    x, weight, bias = _named(args, kwargs, "input", "weight", "bias")
    tag = recording.weight_of(weight, lambda: _outer(recording, weight.shape))
    _weighs(recording, x, weight, tag if tag is None or len(tag) != 2 else (tag[1].mT, tag[0].mT), bias, output)


def _matmul(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    x, weight = _named(args, kwargs, "input", "other")
    tag = recording.weight_of(weight, lambda: _outer(recording, weight.shape)) if weight.ndim == 2 else None
    if tag is None:
        return unknown(recording, args, kwargs, output)
    return _weighs(recording, x, weight, tag, None, output)


def _addmm(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    bias, x, weight = _named(args, kwargs, "input", "mat1", "mat2")
    tag = recording.weight_of(weight, lambda: _outer(recording, weight.shape))
    _weighs(recording, x, weight, tag, bias, output)


def _weighs(
    recording: "Recording",
    x: Tensor,
    weight: Tensor,
    tag: tuple[Tensor, ...] | None,
    bias: Tensor | None,
    output: Tensor,
) -> None:
    """x W + b, with the signs of W's rows and columns as two factors: its rows meet x, its columns the output."""
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


def _computed_weight(recording: "Recording", given: Sequence[Tensor | None], output: Tensor, channel_dim: int) -> None:
    layout = torch.zeros([size if dim == channel_dim else 1 for dim, size in enumerate(output.shape)])
    tensors = [t for t in given if t is not None]
    ask_for_plus(recording, tensors, output, "its weight is not a parameter, but computed", layout)


def _convolves(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """The signs of a weight are a product: of a vector along its first dimension, and one along its second.

    The first are the outputs and the second the inputs, or the other way round if it is transposed. With several groups
    each has its own vector along the second.
    """
    function = recording.nodes[-1].function
    transposed, space = "transpose" in function, int(function[-2])
    x, weight, bias = _named(args, kwargs, "input", "weight", "bias")
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


def _embeds(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    _, weight = _named(args, kwargs, "input", "weight")

    def factors() -> tuple[Tensor, Tensor]:
        return torch.full((weight.size(0), 1), PLUS), recording.constraints.fresh(1, weight.size(1))

    tag = recording.weight_of(weight, factors)
    if tag is None or len(tag) != 2:
        return unknown(recording, args, kwargs, output)
    rows, columns = tag
    recording.plus(rows, "a row of an embedding is a symbol's")
    recording.give(output, columns.view((1,) * (output.ndim - 1) + (-1,)))
    return None


def _batch_norm(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """(x - mean) / deviation * weight + bias: mean and bias take the signs of x."""
    x, mean, variance, weight, bias = _named(args, kwargs, "input", "running_mean", "running_var", "weight", "bias")
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


def _group_norm(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    x, groups, weight, bias = _named(args, kwargs, "input", "num_groups", "weight", "bias")
    if groups == x.size(1):
        return _batch_norm(recording, (x, None, None, weight, bias), {}, output)
    return unknown(recording, args, kwargs, output)


def _rms_norm(recording: "Recording", args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    x, _, weight = _named(args, kwargs, "input", "normalized_shape", "weight")
    if weight is not None:
        recording.plus(recording.of(weight), "a scale keeps its sign")
    recording.give(output, recording.of(x))


# Helpers


def _floats(values: Any) -> Iterator[Tensor]:
    return (t for t in tensors_in(values) if t.is_floating_point())


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor)]


def _outer(recording: "Recording", shape: torch.Size) -> tuple[Tensor, Tensor]:
    return recording.constraints.fresh(shape[0], 1), recording.constraints.fresh(1, shape[1])


def _named(args: tuple[Any, ...], kwargs: dict[str, Any], *names: str) -> tuple[Any, ...]:
    """Arguments by position or name, None where they are missing."""
    return tuple(args[i] if i < len(args) else kwargs.get(name) for i, name in enumerate(names))


def _shrunk(unknowns: Tensor) -> Tensor:
    """Of size 1 in every dimension along which they are the same."""
    for dim in range(unknowns.ndim):
        first = unknowns.narrow(dim, 0, 1) if unknowns.size(dim) else unknowns
        if unknowns.size(dim) > 1 and bool((unknowns == first).all()):
            unknowns = first
    return unknowns


_REASONS = [
    (r"(adaptive_)?max_pool|amax$|max$|maximum$|topk$|sort$|argmax$|oplu", "it takes a maximum"),
    (r"amin$|min$|minimum$", "it takes a minimum"),
    (r"layer_norm|group_norm", "it takes a mean over channels"),
    (
        r"softmax|log_softmax|sigmoid|exp$|clamp|hardsigmoid|logsumexp",
        "it knows + from -",
    ),
    (r"relu|elu|gelu|silu|mish|softplus|crelu", "a plain activation, it knows + from -"),
    (r"scaled_dot_product|multi_head|bmm$|einsum$|baddbmm$|bilinear", "it multiplies two signals"),
    (r"alpha_dropout|feature_alpha_dropout", "what it drops becomes negative"),
]

_RULES: dict[str, Rule] = {}
for _names, _rule in (
    (
        "neg neg_ positive dropout dropout_ dropout1d dropout2d dropout3d feature_dropout contiguous clone detach to "
        "float double half bfloat16 type type_as cpu cuda alias data tanh tanh_ softsign softshrink hardshrink "
        "tanhshrink erf atan arctan asinh sinh sin sign normalize",
        _passes,
    ),
    (
        "view reshape flatten unflatten squeeze unsqueeze transpose t T mT swapaxes swapdims permute movedim moveaxis "
        "expand expand_as repeat repeat_interleave tile roll flip rot90 narrow select index_select gather chunk split "
        "tensor_split unbind stack cat concat concatenate hstack vstack dstack __getitem__ pixel_shuffle "
        "pixel_unshuffle channel_shuffle unfold ravel view_as reshape_as broadcast_to take_along_dim split_with_sizes "
        "hsplit vsplit diagonal atleast_1d atleast_2d atleast_3d",
        _moves,
    ),
    ("add add_ sub sub_ subtract rsub __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__", _adds),
    ("mul mul_ multiply div div_ divide true_divide __mul__ __rmul__ __imul__ __truediv__", _multiplies),
    ("abs abs_ square", _even),
    ("pow __pow__", _power),
    ("mean sum nanmean nansum", _averages),
    ("var std", _spreads),
    (
        "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d interpolate "
        "upsample",
        _over_space,
    ),
    ("pad", _pads),
    ("hardtanh", _passes_if_odd),
    (
        "zeros_like ones_like empty_like full_like rand_like randn_like "
        "new_zeros new_ones new_empty new_full new_tensor",
        _creates,
    ),
    ("where", _chooses),
    ("linear", _linear),
    ("matmul mm __matmul__", _matmul),
    ("addmm", _addmm),
    ("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", _convolves),
    ("embedding", _embeds),
    ("batch_norm instance_norm", _batch_norm),
    ("group_norm", _group_norm),
    ("rms_norm", _rms_norm),
):
    _RULES |= dict.fromkeys(_names.split(), _rule)
