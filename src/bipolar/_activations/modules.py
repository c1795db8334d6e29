r"""Bipolar activation functions as modules, with the signatures of their plain counterparts in :mod:`torch.nn`.

All of them take two arguments by keyword, with the same meaning everywhere:

- ``dim``: the channel dimension of the input. Default: 1, as in :class:`torch.nn.PReLU`, or the only dimension of a
  1-D tensor. Use -1 where the features come last, such as (batch, time, features): 1 would flip every second *time
  step* there.
- ``pattern``: ``"alternate"`` flips every second channel (the paper's text), ``"halves"`` the first half of them (the
  authors' code). Default: ``"alternate"``.

BReLU here is the *bipolar* ReLU; elsewhere the name also stands for a bounded or a biased one.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

import bipolar.functional as F
from bipolar._activations.channelwise import ChannelActivation, check_function
from bipolar._activations.patterns import Pattern


class Bipolar(ChannelActivation):
    r"""The bipolar version of any elementwise function or module f.

    .. math::
        \text{Bipolar}(x)_i = \begin{cases} f(x_i), & \text{if channel } i \text{ is kept} \\
        -f(-x_i), & \text{if it is flipped} \end{cases}

    Every function of the ReLU family has a module of its own (:class:`BReLU`, :class:`BELU`, ...), which is faster.

    Args:
        f: a function or module that maps a tensor to one of the same shape. A module's parameters are learned.
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Examples::

        >>> m = bipolar.Bipolar(nn.Hardswish())
        >>> input = torch.randn(2, 4)
        >>> output = m(input)
    """

    def __init__(self, f: Callable[[Tensor], Tensor], dim: int = 1, pattern: Pattern = "alternate") -> None:
        super().__init__(dim, pattern)
        check_function(f)
        self.f = f

    def forward(self, input: Tensor) -> Tensor:
        return F.bipolar(self.f, input, self.dim, self.pattern)

    def extra_repr(self) -> str:
        name = "" if isinstance(self.f, nn.Module) else f"f={getattr(self.f, '__name__', repr(self.f))}, "
        return name + super().extra_repr()


class BReLU(ChannelActivation):
    r"""Bipolar rectified linear unit.

    .. math::
        \text{BReLU}(x)_i = \begin{cases} \max(x_i, 0), & \text{if channel } i \text{ is kept} \\
        \min(x_i, 0), & \text{if it is flipped} \end{cases}

    Its output has half the mean of its input, in expectation over i.i.d. channels (Theorem 1 of the paper).

    Args:
        inplace: can optionally do the operation in-place. Default: ``False``
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Examples::

        >>> m = bipolar.BReLU()
        >>> m(torch.tensor([[-1.0, -1.0, 2.0, 2.0]]))
        tensor([[ 0., -1.,  2., -0.]])
    """

    def __init__(self, inplace: bool = False, *, dim: int = 1, pattern: Pattern = "alternate") -> None:
        super().__init__(dim, pattern, inplace)

    def forward(self, input: Tensor) -> Tensor:
        return F.brelu(input, self.inplace, dim=self.dim, pattern=self.pattern)


class BELU(ChannelActivation):
    r"""Bipolar exponential linear unit: :math:`S f(S x)` with

    .. math::
        f(x) = \begin{cases} x, & \text{if } x > 0 \\ \alpha (e^x - 1), & \text{if } x \le 0 \end{cases}

    Its output mean is the average of the input mean and a point in :math:`[-\alpha, \alpha]`, in expectation over
    i.i.d. channels (Theorem 2 of the paper).

    Args:
        alpha: the :math:`\alpha` value of the ELU, where it saturates. Default: 1.0
        inplace: can optionally do the operation in-place. Default: ``False``
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Examples::

        >>> m = bipolar.BELU(dim=-1)
        >>> m(torch.tensor([[[-1.0, -1.0], [2.0, 2.0]]]))
        tensor([[[-0.6321, -1.0000],
                 [ 2.0000,  0.8647]]])
    """

    shown = ("alpha",)

    def __init__(
        self, alpha: float = 1.0, inplace: bool = False, *, dim: int = 1, pattern: Pattern = "alternate"
    ) -> None:
        super().__init__(dim, pattern, inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return F.belu(input, self.alpha, self.inplace, dim=self.dim, pattern=self.pattern)


class BLeakyReLU(ChannelActivation):
    r"""Bipolar leaky rectified linear unit: :math:`S f(S x)` with

    .. math::
        f(x) = \begin{cases} x, & \text{if } x > 0 \\ a x, & \text{if } x \le 0 \end{cases}

    Args:
        negative_slope: the slope :math:`a`. Default: 0.01
        inplace: can optionally do the operation in-place. Default: ``False``
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Examples::

        >>> m = bipolar.BLeakyReLU(0.1)
        >>> m(torch.tensor([[-1.0, -1.0, 2.0, 2.0]]))
        tensor([[-0.1000, -1.0000,  2.0000,  0.2000]])
    """

    shown = ("negative_slope",)

    def __init__(
        self,
        negative_slope: float = 1e-2,
        inplace: bool = False,
        *,
        dim: int = 1,
        pattern: Pattern = "alternate",
    ) -> None:
        super().__init__(dim, pattern, inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        return F.bleaky_relu(input, self.negative_slope, self.inplace, dim=self.dim, pattern=self.pattern)


class BPReLU(ChannelActivation):
    r"""Bipolar parametric rectified linear unit: :class:`BLeakyReLU` with a slope :math:`a` that is learned.

    Args:
        num_parameters: how many slopes to learn: 1, or the number of channels. Default: 1
        init: the initial value of :math:`a`. Default: 0.25
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Attributes:
        weight: the learnable slopes of shape (``num_parameters``).

    Examples::

        >>> m = bipolar.BPReLU(num_parameters=4)
        >>> m(torch.tensor([[-1.0, -1.0, 2.0, 2.0]]))
        tensor([[-0.2500, -1.0000,  2.0000,  0.5000]], grad_fn=<MulBackward0>)

    .. note::
        weight decay should not be used when learning :math:`a`, as with :class:`torch.nn.PReLU`.
    """

    shown = ("num_parameters",)

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        dim: int = 1,
        pattern: Pattern = "alternate",
    ) -> None:
        super().__init__(dim, pattern)
        self.num_parameters = num_parameters
        self.init = init
        self.weight = nn.Parameter(torch.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.bprelu(input, self.weight, dim=self.dim, pattern=self.pattern)


class BRReLU(ChannelActivation):
    r"""Bipolar randomised leaky rectified linear unit: :class:`BLeakyReLU` with a random slope.

    In training the slope of every element is drawn from :math:`\mathcal{U}(\text{lower}, \text{upper})`; in evaluation
    it is the mean of the two.

    Args:
        lower: lower bound of the slope. Default: 1/8
        upper: upper bound of the slope. Default: 1/3
        inplace: can optionally do the operation in-place. Default: ``False``
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Examples::

        >>> m = bipolar.BRReLU(0.1, 0.3).eval()
        >>> m(torch.tensor([[-1.0, -1.0, 2.0, 2.0]]))
        tensor([[-0.2000, -1.0000,  2.0000,  0.4000]])
    """

    shown = ("lower", "upper")

    def __init__(
        self,
        lower: float = 1.0 / 8,
        upper: float = 1.0 / 3,
        inplace: bool = False,
        *,
        dim: int = 1,
        pattern: Pattern = "alternate",
    ) -> None:
        super().__init__(dim, pattern, inplace)
        F.check_slopes(lower, upper)
        self.lower = lower
        self.upper = upper

    def forward(self, input: Tensor) -> Tensor:
        return F.brrelu(input, self.lower, self.upper, self.training, self.inplace, dim=self.dim, pattern=self.pattern)


class BSELU(ChannelActivation):
    r"""Bipolar scaled exponential linear unit: :math:`S f(S x)` with

    .. math::
        f(x) = \text{scale} \cdot
        \begin{cases} x, & \text{if } x > 0 \\ \alpha (e^x - 1), & \text{if } x \le 0 \end{cases}

    and :math:`\alpha = 1.6733`, :math:`\text{scale} = 1.0507`, the fixed point of `Self-Normalizing Neural Networks
    <https://arxiv.org/abs/1706.02515>`_.

    Args:
        inplace: can optionally do the operation in-place. Default: ``False``
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Examples::

        >>> m = bipolar.BSELU()
        >>> m(torch.tensor([[-1.0, -1.0, 2.0, 2.0]]))
        tensor([[-1.1113, -1.0507,  2.1014,  1.5202]])
    """

    def __init__(self, inplace: bool = False, *, dim: int = 1, pattern: Pattern = "alternate") -> None:
        super().__init__(dim, pattern, inplace)

    def forward(self, input: Tensor) -> Tensor:
        return F.bselu(input, self.inplace, dim=self.dim, pattern=self.pattern)


class BCELU(ChannelActivation):
    r"""Bipolar continuously differentiable exponential linear unit: :math:`S f(S x)` with

    .. math::
        f(x) = \begin{cases} x, & \text{if } x > 0 \\ \alpha (e^{x / \alpha} - 1), & \text{if } x \le 0 \end{cases}

    Args:
        alpha: the :math:`\alpha` value of the CELU, not 0. Default: 1.0
        inplace: can optionally do the operation in-place. Default: ``False``
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Examples::

        >>> m = bipolar.BCELU(alpha=0.5)
        >>> m(torch.tensor([[-1.0, -1.0, 2.0, 2.0]]))
        tensor([[-0.4323, -1.0000,  2.0000,  0.4908]])
    """

    shown = ("alpha",)

    def __init__(
        self, alpha: float = 1.0, inplace: bool = False, *, dim: int = 1, pattern: Pattern = "alternate"
    ) -> None:
        super().__init__(dim, pattern, inplace)
        F.check_celu_alpha(alpha)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return F.bcelu(input, self.alpha, self.inplace, dim=self.dim, pattern=self.pattern)


class BGELU(ChannelActivation):
    r"""Bipolar Gaussian error linear unit: :math:`S f(S x)` with :math:`f(x) = x \, \Phi(x)`.

    :math:`\Phi` is the cumulative distribution function of the standard normal distribution.

    Args:
        approximate: ``"none"``, or ``"tanh"`` for the approximation of that name. Default: ``"none"``
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Examples::

        >>> m = bipolar.BGELU()
        >>> m(torch.tensor([[-1.0, -1.0, 2.0, 2.0]]))
        tensor([[-0.1587, -0.8413,  1.9545,  0.0455]])
    """

    shown = ("approximate",)

    def __init__(
        self, approximate: Literal["none", "tanh"] = "none", *, dim: int = 1, pattern: Pattern = "alternate"
    ) -> None:
        super().__init__(dim, pattern)
        self.approximate: Literal["none", "tanh"] = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.bgelu(input, self.approximate, dim=self.dim, pattern=self.pattern)


class BSiLU(ChannelActivation):
    r"""Bipolar sigmoid linear unit (swish): :math:`S f(S x)` with :math:`f(x) = x \, \sigma(x)`.

    Args:
        inplace: can optionally do the operation in-place. Default: ``False``
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Examples::

        >>> m = bipolar.BSiLU()
        >>> m(torch.tensor([[-1.0, -1.0, 2.0, 2.0]]))
        tensor([[-0.2689, -0.7311,  1.7616,  0.2384]])
    """

    def __init__(self, inplace: bool = False, *, dim: int = 1, pattern: Pattern = "alternate") -> None:
        super().__init__(dim, pattern, inplace)

    def forward(self, input: Tensor) -> Tensor:
        return F.bsilu(input, self.inplace, dim=self.dim, pattern=self.pattern)


class BSoftplus(ChannelActivation):
    r"""Bipolar softplus: :math:`S f(S x)` with :math:`f(x) = \frac{1}{\beta} \log(1 + e^{\beta x})`.

    Args:
        beta: the :math:`\beta` value of the softplus. Default: 1.0
        threshold: where :math:`\beta x` exceeds it, :math:`f(x) = x`. Default: 20.0
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Examples::

        >>> m = bipolar.BSoftplus()
        >>> m(torch.tensor([[-1.0, -1.0, 2.0, 2.0]]))
        tensor([[ 0.3133, -1.3133,  2.1269, -0.1269]])
    """

    shown = ("beta", "threshold")

    def __init__(
        self, beta: float = 1.0, threshold: float = 20.0, *, dim: int = 1, pattern: Pattern = "alternate"
    ) -> None:
        super().__init__(dim, pattern)
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.bsoftplus(input, self.beta, self.threshold, dim=self.dim, pattern=self.pattern)
