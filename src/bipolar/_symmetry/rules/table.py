"""Sign rules of torch functions, by name.

With s the signs of a tensor x, a function f commutes with them if f(s x) = s' f(x) for some signs s' of its output.
Many functions do where the signs are the same along some dimensions, or for two inputs. All others require +1.
"""

from bipolar._activations.catalogue import of_plain_name
from bipolar._symmetry.rules.arguments import Rule
from bipolar._symmetry.rules.elementwise import activation, add, choose, create, even, multiply, odd, power
from bipolar._symmetry.rules.layers import (
    addmm,
    batch_norm,
    convolve,
    embed,
    group_norm,
    layer_norm,
    linear,
    matmul,
    rms_norm,
    weight_norm,
)
from bipolar._symmetry.rules.moves import move, pack, pad, write
from bipolar._symmetry.rules.reductions import average, norm, pool, variance, variance_and_mean
from bipolar._symmetry.rules.refusal import refuse


def rule_for(function: str) -> Rule:
    """The rule of a function, by its name."""
    return _FUNCTION_RULES.get(function) or (refuse if of_plain_name(function) is None else activation)


_FUNCTION_RULES: dict[str, Rule] = {}
for _names, _rule in (
    (
        "neg neg_ positive dropout dropout_ dropout1d dropout2d dropout3d feature_dropout contiguous clone detach to "
        "float double half bfloat16 type type_as cpu cuda alias data "
        "erf atan arctan asinh sinh sin sign reciprocal normalize",
        odd,
    ),
    (
        "view reshape flatten unflatten squeeze unsqueeze transpose t T mT swapaxes swapdims permute movedim moveaxis "
        "expand expand_as repeat repeat_interleave tile roll flip rot90 narrow select index_select gather chunk split "
        "tensor_split unbind stack cat concat concatenate hstack vstack dstack __getitem__ pixel_shuffle "
        "pixel_unshuffle channel_shuffle unfold ravel view_as reshape_as broadcast_to take_along_dim split_with_sizes "
        "hsplit vsplit diagonal atleast_1d atleast_2d atleast_3d",
        move,
    ),
    ("add add_ sub sub_ subtract rsub __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__", add),
    (
        "mul mul_ multiply div div_ divide true_divide __mul__ __rmul__ __imul__ __truediv__ __rtruediv__ __itruediv__",
        multiply,
    ),
    ("abs abs_ square", even),
    ("pow __pow__", power),
    ("mean sum nanmean nansum", average),
    ("var std", variance),
    ("var_mean std_mean", variance_and_mean),
    ("norm linalg_norm linalg_vector_norm", norm),
    (
        "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d interpolate "
        "upsample",
        pool,
    ),
    ("pad", pad),
    ("_pack_padded_sequence _pad_packed_sequence", pack),
    ("__setitem__", write),
    (
        "zeros_like ones_like empty_like full_like rand_like randn_like "
        "new_zeros new_ones new_empty new_full new_tensor",
        create,
    ),
    ("where", choose),
    ("linear", linear),
    ("matmul mm bmm __matmul__ __rmatmul__", matmul),
    ("_weight_norm", weight_norm),
    ("addmm", addmm),
    ("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", convolve),
    ("embedding", embed),
    ("batch_norm instance_norm", batch_norm),
    ("group_norm", group_norm),
    ("layer_norm", layer_norm),
    ("rms_norm", rms_norm),
):
    _FUNCTION_RULES |= dict.fromkeys(_names.split(), _rule)
