"""Adaptive gradient clipping."""

from collections.abc import Iterable

import torch
from torch import Tensor

from bipolar._tools.checks import check_positive


@torch.no_grad()
def clip_by_unit_(parameters: Tensor | Iterable[Tensor], clipping: float = 0.01, eps: float = 1e-3) -> Tensor:
    r"""Clips the gradient of each unit to a share of the norm of its weights, in place.

    .. math::
        G_i \leftarrow G_i \min\left( 1, \; \lambda \frac{\max(\lVert W_i \rVert, \epsilon)}{\lVert G_i \rVert} \right)

    with :math:`\lambda` = ``clipping``; unit i is a filter of a convolution, a row of a matrix, or a whole bias. From
    Brock et al., `High-Performance Large-Scale Image Recognition Without Normalization
    <https://arxiv.org/abs/2102.06171>`_, 2021, where the last layer is not clipped: leave its parameters out.

    Call it between ``backward`` and ``step``, as :func:`torch.nn.utils.clip_grad_norm_`; a gradient scaler has to
    unscale first.

    Args:
        parameters: the parameters, or one; those without a gradient are left out
        clipping: the largest ratio of the norms of gradient and weights, :math:`\lambda`. Default: 0.01
        eps: what a norm of weights counts at least, so that units which start at zero can leave it. Default: 1e-3

    Returns:
        The share of units whose gradient was clipped, a tensor without dimensions.

    Examples::

        >>> layer = nn.Conv2d(3, 16, 3)
        >>> layer(torch.randn(2, 3, 8, 8)).square().sum().backward()
        >>> share = bipolar.optim.clip_by_unit_(layer.parameters(), 0.01)
        >>> ratios = layer.weight.grad.flatten(1).norm(dim=1) / layer.weight.flatten(1).norm(dim=1)
        >>> bool(ratios.max() < 0.0101)
        True
    """
    check_positive("clipping", clipping)
    check_positive("eps", eps)
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    pairs = [(p, p.grad) for p in given if p.grad is not None]
    if not pairs:
        return torch.zeros(())
    if any(gradient.is_sparse for _, gradient in pairs):
        raise ValueError("parameters: a gradient is sparse and cannot be clipped; leave its parameter out")
    limits, norms = [_unit_norms(p) for p, _ in pairs], [_unit_norms(g) for _, g in pairs]
    torch._foreach_clamp_min_(limits, eps)
    torch._foreach_mul_(limits, clipping)
    clipped = [norm > limit for norm, limit in zip(norms, limits, strict=True)]
    torch._foreach_clamp_min_(norms, 1e-30)  # a gradient of zero has no direction to keep
    factors = torch._foreach_div(limits, norms)
    torch._foreach_clamp_max_(factors, 1.0)
    torch._foreach_mul_([gradient for _, gradient in pairs], factors)
    device = norms[0].device
    counts = torch.stack([flags.sum().to(device) for flags in clipped])
    return counts.sum() / sum(flags.numel() for flags in clipped)


def _unit_norms(tensor: Tensor) -> Tensor:
    dims = tuple(range(1, tensor.ndim)) if tensor.ndim > 1 else None
    norms: Tensor = torch.linalg.vector_norm(tensor, dim=dims, keepdim=True)
    return norms
