r"""The stack along its diagonals, with a hand-written backward pass.

The cell of layer i at time t needs those of layer i - 1 at t and of layer i at t - 1. So all cells with i + t = d can
be computed together: a *front* that moves up the layers and on in time.

Three properties make it fast:

- The products of a front are one batched product, large enough for all cores even where a layer's own is not, and there
  are only T + L - 1 fronts for T L cells.
- A bipolar activation needs no signs: with :math:`W' = S W S`, :math:`U' = S U S` and :math:`b' = S b` the states are
  :math:`S h` and the activation is the plain one. The weights are conjugated once a pass. They take up the factor
  1 / (1 - p) of dropout, too, so that a mask is small integers, 0 or 1.
- Only the states are kept for the backward pass, before and after a skip: the derivative of the activation follows from
  its output. Each front is a tensor of its own, small enough that the allocator has it at hand.
"""

from bipolar._rnn.wavefront.function import run

__all__ = ["run"]
