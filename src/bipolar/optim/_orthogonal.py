"""Newton-Schulz iteration, which makes many matrices about orthogonal at once."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

#: The quintic of Muon: a large slope at zero, in exchange for singular values that end between 0.7 and 1.2, not at 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)

#: From so many columns to a row on, iterating in the Gram matrix needs fewer multiplications, for five steps.
_WIDE = 1.5


def as_matrix(tensor: Tensor) -> Tensor:
    """A weight as the matrix of a linear map, outputs by inputs: of a convolution, out by (in * k * k)."""
    return tensor.flatten(1)


def is_matrix(tensor: Tensor) -> bool:
    """Whether a weight has at least two rows and two columns; otherwise it is a vector, whatever its dimensions."""
    return tensor.ndim > 1 and len(tensor) > 1 and tensor.numel() > len(tensor)


def orthogonalised(matrices: Sequence[Tensor], steps: int, dtype: torch.dtype | None = None) -> list[Tensor]:
    r"""About :math:`U V^T` for each matrix :math:`U \Sigma V^T`: new tensors, of the shapes and types that came in.

    .. math::
        X_0 = M / \lVert M \rVert_F, \quad X_{k+1} = (a + b A_k + c A_k^2) X_k, \quad A_k = X_k X_k^T

    Matrices of one shape, lying or standing, share each product. Wide ones share more: all :math:`X_k` are polynomials
    in :math:`A_0` times :math:`X_0`, so that the iteration runs on square matrices of the smaller side.
    """
    shapes: dict[object, list[int]] = defaultdict(list)
    for i, matrix in enumerate(matrices):
        shapes[min(matrix.shape), matrix.numel(), matrix.dtype, matrix.device].append(i)
    squares: dict[object, list[tuple[list[int], Tensor]]] = defaultdict(list)
    found: dict[int, Tensor] = {}
    for members in shapes.values():
        x = torch.stack([_lying(matrices[i]) for i in members])
        x = x.to(dtype or torch.promote_types(x.dtype, torch.float32))
        norms = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True)
        x = x / norms.clamp_min(torch.finfo(x.dtype).tiny)  # a matrix of zeros stays one
        # The Gram matrix holds squares of singular values: half precision would lose all but the largest.
        if x.size(2) < _WIDE * x.size(1) or torch.finfo(x.dtype).bits < 32:
            found |= zip(members, _iterated(x, steps), strict=True)
        else:
            squares[x.size(1), x.dtype, x.device].append((members, x))
    for same_side in squares.values():
        factors = _factor(torch.cat([torch.bmm(x, x.mT) for _, x in same_side]), steps)
        for (members, x), factor in zip(same_side, factors.split([len(x) for _, x in same_side]), strict=True):
            found |= zip(members, torch.bmm(factor, x), strict=True)
    return [(found[i] if _is_lying(matrix) else found[i].mT).to(matrix.dtype) for i, matrix in enumerate(matrices)]


def _iterated(x: Tensor, steps: int) -> Tensor:
    """The iteration as the formula has it, on (matrices, rows, columns)."""
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _factor(gram: Tensor, steps: int) -> Tensor:
    r"""The product of all :math:`P_k = a + b A_k + c A_k^2`, which turns :math:`X_0` into the last :math:`X_k`.

    The next Gram matrix is :math:`A_{k+1} = P_k A_k P_k`; as polynomials in :math:`A_0` they all commute.
    """
    a, b, c = COEFFICIENTS
    factor = torch.eye(gram.size(1), dtype=gram.dtype, device=gram.device).expand_as(gram)
    for k in range(steps):
        p = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        p.diagonal(dim1=1, dim2=2).add_(a)
        factor = torch.bmm(p, factor) if k else p
        if k + 1 < steps:
            gram = torch.bmm(torch.bmm(p, gram), p)
    return factor


def _is_lying(matrix: Tensor) -> bool:
    return matrix.size(0) <= matrix.size(1)


def _lying(matrix: Tensor) -> Tensor:
    return matrix if _is_lying(matrix) else matrix.mT
