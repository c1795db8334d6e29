"""The norm stabiliser: a price on changes of the norm of the hidden units."""

import math

import torch
from torch import Tensor


def norm_stabiliser(outputs: Tensor, beta: float) -> Tensor:
    r"""The penalty on changes of the norm from step to step, to be added to the loss.

    .. math:: \beta \, \frac{1}{T - 1} \sum_{t=2}^T (\lVert h_t \rVert_2 - \lVert h_{t-1} \rVert_2)^2

    averaged over the batch.

    Reference: Krueger & Memisevic, `Regularizing RNNs by Stabilizing Activations <https://arxiv.org/abs/1511.08400>`_,
    2015. The paper's sum begins with the state before the first step; like the code released with Zoneout by the same
    author, this function takes outputs alone. Give it the carried state and the outputs, concatenated, for the other.

    Args:
        outputs: the hidden units, (time, batch, width), of two time steps or more
        beta: the weight of the penalty

    Examples::

        >>> outputs = torch.tensor([[[3.0, 4.0]], [[0.0, 6.0]], [[4.0, 0.0]]])  # norms of 5, 6 and 4
        >>> norm_stabiliser(outputs, beta=50)
        tensor(125.)
    """
    if outputs.dim() != 3 or len(outputs) < 2:
        raise ValueError(
            f"outputs: expected a shape of (time, batch, width) with a time of at least 2, got {tuple(outputs.shape)}"
        )
    if not 0 <= beta < math.inf:
        raise ValueError(f"beta: expected a number that is not negative, got {beta}")
    norms: Tensor = torch.linalg.vector_norm(outputs, dim=-1)
    return beta * norms.diff(dim=0).square().mean()
