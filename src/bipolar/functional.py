r"""Bipolar activation functions: f_B(x) = S f(S x).

With a diagonal matrix S of signs, a bipolar activation is f(x_i) on the channels that are kept and -f(-x_i) on those
that are flipped, so the mean of a layer of such units moves towards zero. From Eidnes & Nøkland,
`Shifting Mean Activation Towards Zero with Bipolar Activation Functions <https://arxiv.org/abs/1709.04054>`_, 2018.

Every function has the signature of its plain counterpart in :mod:`torch.nn.functional`, and two arguments by keyword:

- ``dim``: the channel dimension. Default: 1, as in :class:`torch.nn.PReLU`, or the only dimension of a 1-D tensor.
  Use -1 where the features come last, such as (batch, time, features): 1 would flip every second *time step* there.
- ``pattern``: ``"alternate"`` flips every second channel (the paper's text), ``"halves"`` the first half of them (the
  authors' code). Default: ``"alternate"``.

Examples::

    >>> import torch
    >>> import bipolar.functional as F
    >>> F.brelu(torch.tensor([[-1.0, -1.0, 2.0, 2.0]]))
    tensor([[ 0., -1.,  2., -0.]])
    >>> F.brelu(torch.tensor([[-1.0, -1.0, 2.0, 2.0]]), pattern="halves")
    tensor([[-1., -1.,  2.,  2.]])
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypeVar, cast

import torch
import torch.nn.functional as tF
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from bipolar._activations import kernels
from bipolar._activations.patterns import Pattern, check_pattern, signs

__all__ = [
    "bcelu",
    "belu",
    "bgelu",
    "bipolar",
    "bleaky_relu",
    "bprelu",
    "brelu",
    "brrelu",
    "bselu",
    "bsilu",
    "bsoftplus",
    "crelu",
    "oplu",
]

# https://arxiv.org/abs/1706.02515, with the digits that torch has
SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


Function = TypeVar("Function", bound=Callable[..., Tensor])


def overridable(function: Function) -> Function:
    """Shows calls of a function to ``__torch_function__`` of tensor subclasses and modes, as torch does its own."""

    @wraps(function)
    def wrapper(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if has_torch_function_unary(input):
            return handle_torch_function(wrapper, (input,), input, *args, **kwargs)
        return function(input, *args, **kwargs)

    return cast(Function, wrapper)


def bipolar(
    f: Callable[[Tensor], Tensor],
    input: Tensor,
    dim: int = 1,
    pattern: Pattern = "alternate",
) -> Tensor:
    r"""The bipolar version of any elementwise function: :math:`f_B(x) = S f(S x)`.

    Args:
        f: a function from a tensor to a tensor of the same shape
        input: the input tensor, of any floating-point dtype
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Examples::

        >>> F.bipolar(torch.exp, torch.zeros(4))
        tensor([ 1., -1.,  1., -1.])
    """
    if has_torch_function_unary(input):
        return handle_torch_function(bipolar, (input,), f, input, dim, pattern)
    sign = _signs_like(input, _check(input, dim, pattern), pattern)
    output = f(sign * input)
    if output.shape != input.shape:
        raise ValueError(
            f"f: expected an elementwise function, but it made {tuple(output.shape)} of {tuple(input.shape)}"
        )
    return sign.to(output.dtype) * output  # autocast may have changed it


@overridable
def brelu(input: Tensor, inplace: bool = False, *, dim: int = 1, pattern: Pattern = "alternate") -> Tensor:
    r"""Bipolar ReLU: :math:`\max(x, 0)` on kept and :math:`\min(x, 0)` on flipped channels.

    See :class:`~bipolar.BReLU`.

    Examples::

        >>> x = torch.tensor([[-1.0, -1.0, 2.0, 2.0]])
        >>> F.brelu(x)
        tensor([[ 0., -1.,  2., -0.]])
    """
    channel_dim = _check(input, dim, pattern, inplace)
    if kernels.is_plain(input) and (not inplace or _owns_its_memory(input)):
        return kernels.apply(kernels.BReLUFunction, input, channel_dim, pattern, inplace)
    if kernels.is_traced(input):
        output = kernels.traced_brelu(input, _signs_like(input, channel_dim, pattern))
        return input.copy_(output) if inplace else output
    return _by_formula(tF.relu, input, inplace, dim, pattern)


@overridable
def belu(
    input: Tensor, alpha: float = 1.0, inplace: bool = False, *, dim: int = 1, pattern: Pattern = "alternate"
) -> Tensor:
    r"""Bipolar ELU: :math:`S f(S x)` with :math:`f(x) = x` for :math:`x > 0`, else :math:`\alpha (e^x - 1)`.

    See :class:`~bipolar.BELU`.

    Examples::

        >>> x = torch.tensor([[-1.0, -1.0, 2.0, 2.0]])
        >>> F.belu(x)
        tensor([[-0.6321, -1.0000,  2.0000,  0.8647]])
    """
    return _by_kernel(kernels.elu(float(alpha)), input, inplace, dim, pattern)


@overridable
def bleaky_relu(
    input: Tensor, negative_slope: float = 0.01, inplace: bool = False, *, dim: int = 1, pattern: Pattern = "alternate"
) -> Tensor:
    r"""Bipolar Leaky ReLU: :math:`S f(S x)` with :math:`f(x) = x` for :math:`x > 0`, else :math:`a x`.

    See :class:`~bipolar.BLeakyReLU`.

    Examples::

        >>> x = torch.tensor([[-1.0, -1.0, 2.0, 2.0]])
        >>> F.bleaky_relu(x, 0.1)
        tensor([[-0.1000, -1.0000,  2.0000,  0.2000]])
    """
    return _by_kernel(kernels.leaky_relu(float(negative_slope)), input, inplace, dim, pattern)


@overridable
def bprelu(input: Tensor, weight: Tensor, *, dim: int = 1, pattern: Pattern = "alternate") -> Tensor:
    r"""Bipolar PReLU: Leaky ReLU with the slopes :math:`a` = ``weight``, one for all channels or one for each.

    See :class:`~bipolar.BPReLU`.

    Examples::

        >>> x = torch.tensor([[-1.0, -1.0, 2.0, 2.0]])
        >>> F.bprelu(x, torch.tensor([0.1, 0.2, 0.3, 0.4]))
        tensor([[-0.1000, -1.0000,  2.0000,  0.8000]])
    """
    channel_dim = _check(input, dim, pattern)
    channels = input.size(channel_dim)
    if weight.ndim > 1 or weight.numel() not in (1, channels):
        raise ValueError(
            f"weight: expected one slope or {channels}, one for each channel of dimension {dim} of the input, "
            f"got shape {tuple(weight.shape)}"
        )

    def prelu(u: Tensor) -> Tensor:  # torch's has the channels in dimension 1 of at least two
        return tF.prelu(u.unsqueeze(0).movedim(channel_dim + 1, 1), weight).movedim(1, channel_dim + 1).squeeze(0)

    return bipolar(prelu, input, dim, pattern)


@overridable
def brrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
    *,
    dim: int = 1,
    pattern: Pattern = "alternate",
) -> Tensor:
    r"""Bipolar RReLU: Leaky ReLU with a random slope,
    :math:`a \sim \mathcal{U}(\text{lower}, \text{upper})` in training and the mean of the two otherwise.

    See :class:`~bipolar.BRReLU`.

    Examples::

        >>> x = torch.tensor([[-1.0, -1.0, 2.0, 2.0]])
        >>> F.brrelu(x, 0.1, 0.3)
        tensor([[-0.2000, -1.0000,  2.0000,  0.4000]])
    """
    check_slopes(lower, upper)
    if not training:
        return bleaky_relu(input, (lower + upper) / 2, inplace, dim=dim, pattern=pattern)
    _check(input, dim, pattern, inplace)
    return _by_formula(lambda u: tF.rrelu(u, lower, upper, training=True), input, inplace, dim, pattern)


@overridable
def bselu(input: Tensor, inplace: bool = False, *, dim: int = 1, pattern: Pattern = "alternate") -> Tensor:
    r"""Bipolar SELU: :math:`S f(S x)` with the scaled ELU,
    :math:`f(x) = 1.0507\,\text{ELU}_{1.6733}(x)`.

    See :class:`~bipolar.BSELU`.

    Examples::

        >>> x = torch.tensor([[-1.0, -1.0, 2.0, 2.0]])
        >>> F.bselu(x)
        tensor([[-1.1113, -1.0507,  2.1014,  1.5202]])
    """
    return _by_kernel(kernels.elu(SELU_ALPHA, SELU_SCALE), input, inplace, dim, pattern)


@overridable
def bcelu(
    input: Tensor, alpha: float = 1.0, inplace: bool = False, *, dim: int = 1, pattern: Pattern = "alternate"
) -> Tensor:
    r"""Bipolar CELU: :math:`S f(S x)` with :math:`f(x) = x` for :math:`x > 0`, else
    :math:`\alpha (e^{x / \alpha} - 1)`.

    See :class:`~bipolar.BCELU`.

    Examples::

        >>> x = torch.tensor([[-1.0, -1.0, 2.0, 2.0]])
        >>> F.bcelu(x, 0.5)
        tensor([[-0.4323, -1.0000,  2.0000,  0.4908]])
    """
    check_celu_alpha(alpha)
    return _by_kernel(kernels.elu(float(alpha), 1.0, 1.0 / float(alpha)), input, inplace, dim, pattern)


@overridable
def bgelu(
    input: Tensor,
    approximate: Literal["none", "tanh"] = "none",
    *,
    dim: int = 1,
    pattern: Pattern = "alternate",
) -> Tensor:
    r"""Bipolar GELU: :math:`S f(S x)` with :math:`f(x) = x \Phi(x)`.

    See :class:`~bipolar.BGELU`.

    Examples::

        >>> x = torch.tensor([[-1.0, -1.0, 2.0, 2.0]])
        >>> F.bgelu(x)
        tensor([[-0.1587, -0.8413,  1.9545,  0.0455]])
    """
    return _by_kernel(kernels.gelu(approximate), input, False, dim, pattern)


@overridable
def bsilu(input: Tensor, inplace: bool = False, *, dim: int = 1, pattern: Pattern = "alternate") -> Tensor:
    r"""Bipolar SiLU: :math:`S f(S x)` with :math:`f(x) = x \sigma(x)`.

    See :class:`~bipolar.BSiLU`.

    Examples::

        >>> x = torch.tensor([[-1.0, -1.0, 2.0, 2.0]])
        >>> F.bsilu(x)
        tensor([[-0.2689, -0.7311,  1.7616,  0.2384]])
    """
    return _by_kernel(kernels.silu(), input, inplace, dim, pattern)


@overridable
def bsoftplus(
    input: Tensor, beta: float = 1.0, threshold: float = 20.0, *, dim: int = 1, pattern: Pattern = "alternate"
) -> Tensor:
    r"""Bipolar softplus: :math:`S f(S x)` with :math:`f(x) = \log(1 + e^{\beta x}) / \beta`.

    See :class:`~bipolar.BSoftplus`.

    Examples::

        >>> x = torch.tensor([[-1.0, -1.0, 2.0, 2.0]])
        >>> F.bsoftplus(x)
        tensor([[ 0.3133, -1.3133,  2.1269, -0.1269]])
    """
    # Not by kernel: autocast on some devices wants softplus in float32, and has to see it.
    return bipolar(lambda u: tF.softplus(u, beta, threshold), input, dim, pattern)


@overridable
def oplu(input: Tensor, *, dim: int = 1, pattern: Pattern = "alternate") -> Tensor:
    r"""Orthogonal permutation linear unit: sorts pairs of channels, :math:`(\max(x_i, x_j), \min(x_i, x_j))`.

    See :class:`~bipolar.OPLU`.

    Examples::

        >>> F.oplu(torch.tensor([[1.0, 2.0, 4.0, 3.0, 5.0]]))
        tensor([[2., 1., 4., 3., 5.]])
    """
    channel_dim = _check(input, dim, pattern)
    half = input.size(channel_dim) // 2
    if pattern == "alternate":
        i, j = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        i, j = slice(0, half), slice(half, 2 * half)
    output = input.clone()  # of an odd number of channels the last stays as it is
    x, y = input.movedim(channel_dim, 0), output.movedim(channel_dim, 0)
    y[i] = torch.maximum(x[i], x[j])
    y[j] = torch.minimum(x[i], x[j])
    return output


@overridable
def crelu(input: Tensor, f: Callable[[Tensor], Tensor] = tF.relu, *, dim: int = 1) -> Tensor:
    r"""Concatenated ReLU: :math:`(f(x), f(-x))`, along ``dim``.

    See :class:`~bipolar.CReLU`.

    Examples::

        >>> F.crelu(torch.tensor([[-1.0, 2.0]]))
        tensor([[0., 2., 1., 0.]])
    """
    channel_dim = _check(input, dim)
    negative = f(-input)  # first: f may work in place
    return torch.cat((f(input), negative), dim=channel_dim)


def check_slopes(lower: float, upper: float) -> None:
    if lower > upper:
        raise ValueError(f"lower: expected at most upper = {upper}, got {lower}")


def check_celu_alpha(alpha: float) -> None:
    if alpha == 0:
        raise ValueError("alpha: expected a number other than 0, got 0")


def _by_kernel(kernel: kernels.Kernel, input: Tensor, inplace: bool, dim: int, pattern: Pattern) -> Tensor:
    channel_dim = _check(input, dim, pattern, inplace)
    if kernels.is_plain(input) and (not inplace or (kernel.output_suffices and _owns_its_memory(input))):
        sign = _signs_like(input, channel_dim, pattern)
        return kernels.apply(kernels.BipolarFunction, input, sign, kernel, inplace)
    return _by_formula(kernel.forward, input, inplace, dim, pattern)


def _by_formula(f: Callable[[Tensor], Tensor], input: Tensor, inplace: bool, dim: int, pattern: Pattern) -> Tensor:
    output = bipolar(f, input, dim, pattern)
    return input.copy_(output) if inplace else output


def _owns_its_memory(input: Tensor) -> bool:
    """Whether the input is not a view: torch has to refuse to overwrite some views before anything is written."""
    return input._base is None


def _signs_like(input: Tensor, channel_dim: int, pattern: Pattern) -> Tensor:
    """S, of a shape that multiplies ``input`` along its channel dimension."""
    sign = signs(input.size(channel_dim), pattern, dtype=input.dtype, device=input.device)
    return sign.view(-1, *[1] * (input.ndim - 1 - channel_dim))


def _check(input: Tensor, dim: int, pattern: Pattern = "alternate", inplace: bool = False) -> int:
    """Checks the arguments of a call; returns the channel dimension, counted from the front."""
    check_pattern(pattern)
    if not input.is_floating_point():
        raise TypeError(
            f"input: expected a floating-point tensor, got {input.dtype}; convert it, as with input.float()"
        )
    if input.ndim == 0:
        raise ValueError("input: expected a tensor with a channel dimension, got one of 0 dimensions")
    if inplace and torch.is_grad_enabled():
        owner = input if input._base is None else input._base
        if owner.is_leaf and owner.requires_grad:
            raise RuntimeError(
                "inplace: cannot overwrite input, a leaf tensor that requires gradients; use inplace=False, or a copy"
            )
    if not isinstance(dim, int):
        raise TypeError(f"dim: expected an integer, got {dim!r}")
    if input.ndim == 1 and dim == 1:
        return 0
    if not -input.ndim <= dim < input.ndim:
        raise IndexError(
            f"dim: expected a value from {-input.ndim} to {input.ndim - 1} for an input of shape "
            f"{tuple(input.shape)}, got {dim}"
        )
    return dim % input.ndim
