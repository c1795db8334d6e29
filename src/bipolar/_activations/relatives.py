"""Relatives of the bipolar activations that the paper discusses, as modules: OPLU and CReLU."""

from collections.abc import Callable

import torch.nn.functional as tF
from torch import Tensor

import bipolar.functional as F
from bipolar._activations.channelwise import ChannelActivation, check_function
from bipolar._activations.patterns import Pattern


class OPLU(ChannelActivation):
    r"""Orthogonal permutation linear unit: sorts pairs of channels, the larger value first.

    .. math::
        \begin{pmatrix} z_i \\ z_j \end{pmatrix} =
        \begin{pmatrix} \max(x_i, x_j) \\ \min(x_i, x_j) \end{pmatrix}

    It keeps the mean and the norm of its input. From Chernodub & Nowicki, `Norm-preserving Orthogonal Permutation
    Linear Unit Activation Functions <https://arxiv.org/abs/1604.02313>`_, 2016. Of an odd number of channels the last
    has no partner and passes unchanged.

    Args:
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time
        pattern: ``"alternate"`` pairs neighbours, 0 with 1, 2 with 3, and so on; ``"halves"`` pairs a channel of the
            first half with the same one of the second. Default: ``"alternate"``

    Shape:
        - Input: :math:`(*)`, where :math:`*` means any number of dimensions but 0.
        - Output: :math:`(*)`, same shape as the input.

    Examples::

        >>> m = bipolar.OPLU()
        >>> m(torch.tensor([[1.0, 2.0, 4.0, 3.0, 5.0]]))
        tensor([[2., 1., 4., 3., 5.]])
    """

    def __init__(self, *, dim: int = 1, pattern: Pattern = "alternate") -> None:
        super().__init__(dim, pattern)

    def forward(self, input: Tensor) -> Tensor:
        return F.oplu(input, dim=self.dim, pattern=self.pattern)


class CReLU(ChannelActivation):
    r"""Concatenated rectified linear unit: :math:`(f(x), f(-x))`, which doubles the channels.

    From Shang et al., `Understanding and Improving Convolutional Neural Networks via Concatenated Rectified Linear
    Units <https://arxiv.org/abs/1603.05201>`_, 2016. With :func:`~bipolar.mirrored_` on the weights of the layer after
    it, it starts out linear.

    Args:
        f: the function to concatenate. Default: :func:`torch.nn.functional.relu`
        dim: the channel dimension. Default: 1; use -1 where features come last, as in (batch, time, features), where 1
            would flip time

    Shape:
        - Input: :math:`(N, C, *)`, where C stands at ``dim``.
        - Output: :math:`(N, 2 C, *)`

    Examples::

        >>> m = bipolar.CReLU()
        >>> m(torch.tensor([[-1.0, 2.0]]))
        tensor([[0., 2., 1., 0.]])
    """

    def __init__(self, f: Callable[[Tensor], Tensor] = tF.relu, *, dim: int = 1) -> None:
        super().__init__(dim, "alternate")
        check_function(f)
        self.f = f

    def forward(self, input: Tensor) -> Tensor:
        return F.crelu(input, self.f, dim=self.dim)
