r"""Convolution by active rotating filters, whose features keep the angle at which they were found.

From Zhou, Ye, Qiu & Jiao, `Oriented Response Networks <https://arxiv.org/abs/1701.01833>`_, 2017. A feature has N
channels, one for each orientation; channels are ordered feature by feature, its orientations together. A filter is
applied in N rotations: its grid turned, and its own orientation channels moved on by as many places.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bipolar._symmetry.recording import Recording
from bipolar._symmetry.rules.modules import sign_rule

#: The outer cells of a 3x3 grid, counter-clockwise from the upper left; a step is a turn by 45 degrees.
RING = (0, 3, 6, 7, 8, 5, 2, 1)
CENTRE = 4
ORIENTATIONS = (4, 8)


def rotation_index(kernel_size: int, in_orientations: int, orientations: int) -> Tensor:
    """The element of a filter (orientation, row, column; flat) that each rotation moves to each place."""
    cells = kernel_size * kernel_size
    index: list[int] = []  # a list until the end: a tensor at a time is slow, slower still in a mode such as meta's
    for rotation in range(orientations):
        source = list(range(cells))
        if kernel_size == 3:
            steps = rotation * len(RING) // orientations
            for place, cell in enumerate(RING):
                source[cell] = RING[(place - steps) % len(RING)]
        for orientation in range(in_orientations):
            before = (orientation - rotation) % in_orientations
            index += [before * cells + cell for cell in source]
    return torch.tensor(index)


class ORConv2d(nn.Conv2d):
    r"""A 2-D convolution with filters in several rotations.

    .. math::
        y_{f, r} = b_f + \sum_{g, o} R_r(W_{f, g, (o - r) \bmod N}) * x_{g, o}

    where :math:`R_r` turns a filter counter-clockwise by :math:`360 r / N` degrees, by moving the outer cells of a 3x3
    filter along their ring. Turning the input by 90 degrees (its grid, and its orientations by N / 4) turns the output
    likewise.

    Args:
        in_features: features of the input
        out_features: features of the output
        kernel_size: 1 or 3
        in_orientations: the channels of each feature of the input: 1 for an image, else as ``orientations``
        orientations: the rotations of each filter, 4 or 8
        stride, padding: as for :class:`torch.nn.Conv2d`
        bias: whether each feature has a bias, the same for all its orientations. Default: ``True``

    Shape:
        - Input: :math:`(N, \text{in\_features} \times \text{in\_orientations}, H, W)`
        - Output: :math:`(N, \text{out\_features} \times \text{orientations}, H', W')`
        - weight: (out_features, in_features * in_orientations, kernel_size, kernel_size), the filters unturned
        - bias: (out_features)

    Examples::

        >>> first = bipolar.models.ORConv2d(3, 4, 3, in_orientations=1, orientations=8, padding=1)
        >>> second = bipolar.models.ORConv2d(4, 5, 3, in_orientations=8, orientations=8, padding=1)
        >>> second(first(torch.randn(2, 3, 16, 16))).shape
        torch.Size([2, 40, 16, 16])
    """

    index: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: int,
        *,
        in_orientations: int,
        orientations: int,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if kernel_size not in (1, 3):
            raise ValueError(f"kernel_size: expected 1 or 3, which can be turned by 45 degrees, got {kernel_size}")
        if orientations not in ORIENTATIONS:
            raise ValueError(f"orientations: expected 4 or 8, got {orientations}")
        if in_orientations not in (1, orientations):
            raise ValueError(
                f"in_orientations: expected 1 for an image, else {orientations} as for orientations, "
                f"got {in_orientations}"
            )
        self.in_features, self.out_features = in_features, out_features
        self.in_orientations, self.orientations = in_orientations, orientations
        super().__init__(
            in_features * in_orientations,
            out_features * orientations,
            kernel_size,
            stride,
            padding,
            bias=False,
            device="meta",  # for its attributes alone: the parameters have other shapes
        )
        shape = (out_features, self.in_channels, kernel_size, kernel_size)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        places = orientations * in_orientations * kernel_size**2
        self.register_buffer("index", torch.empty(places, dtype=torch.int64, device=device), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal weights that keep the variance of a ReLU's output, and no bias; and the index, which is not saved."""
        if "index" not in self._buffers:  # called by the constructor of nn.Conv2d, too early
            return
        nn.init.normal_(self.weight, std=(2 / self.weight[0].numel()) ** 0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        self.index.copy_(rotation_index(self.kernel_size[0], self.in_orientations, self.orientations))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self.index.is_meta and not self.weight.is_meta:  # built without memory, and given weights just now
            index = rotation_index(self.kernel_size[0], self.in_orientations, self.orientations)
            self.index = index.to(self.weight.device)

    def rotated(self) -> Tensor:
        """The weight as a plain convolution's: all filters in all rotations."""
        filters = self.weight.reshape(self.out_features, self.in_features, -1)
        turned: Tensor = filters.index_select(2, self.index).unflatten(2, (self.orientations, -1)).transpose(1, 2)
        return turned.reshape(self.out_channels, self.in_channels, *self.kernel_size)

    def forward(self, input: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.repeat_interleave(self.orientations)
        output: Tensor = self._conv_forward(input, self.rotated(), bias)
        return output

    def extra_repr(self) -> str:
        return (
            f"{self.in_features}, {self.out_features}, kernel_size={self.kernel_size[0]}, "
            f"in_orientations={self.in_orientations}, orientations={self.orientations}, stride={self.stride}, "
            f"padding={self.padding}, bias={self.bias is not None}"
        )


@sign_rule(ORConv2d)
def _oriented_convolution(recording: Recording, module: ORConv2d, given: Sequence[Tensor], output: Tensor) -> None:
    """All orientations of a feature have the same sign."""
    (x,) = given
    unknowns = recording.constraints.uniform(
        recording.of(x), [d for d in range(x.ndim) if d != x.ndim - 3], recording.node
    )
    channels = unknowns.flatten().expand(module.in_channels).view(module.in_features, module.in_orientations)
    inward = recording.constraints.uniform(channels, [1], recording.node).flatten()
    outward = recording.constraints.fresh(module.out_features)
    by_channel = inward.repeat_interleave(module.in_orientations)
    tag = recording.weight_of(module.weight, lambda: (outward.view(-1, 1, 1, 1), by_channel.view(1, -1, 1, 1)))
    known_outward, known_inward = tag  # type: ignore[misc]
    recording.constraints.equate(known_inward.flatten(), by_channel, recording.node)
    outward = known_outward.flatten()
    if module.bias is not None:
        recording.constraints.equate(recording.of(module.bias), outward, recording.node)
    signs = outward.repeat_interleave(module.orientations)
    recording.give(output, signs.view((1,) * (output.ndim - 3) + (-1, 1, 1)))


class OrientedActivation(nn.Module):
    """An activation that treats features as channels, each with all its orientations.

    Args:
        activation: a module whose channels are in dimension 1
        orientations: the channels of each feature
    """

    def __init__(self, activation: nn.Module, orientations: int) -> None:
        super().__init__()
        self.activation, self.orientations = activation, orientations

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = self.activation(input.unflatten(1, (-1, self.orientations)))
        return output.flatten(1, 2)


class ORAlign(nn.Module):
    r"""Moves each feature's orientations on until the largest comes first, however the image is turned.

    As published. Of a feature that a bipolar activation has flipped, whose values are negative, that is the weakest.

    Args:
        orientations: the channels of each feature

    Shape:
        - Input, output: :math:`(N, \text{features} \times \text{orientations})`

    Examples::

        >>> bipolar.models.ORAlign(4)(torch.tensor([[1.0, 3.0, 2.0, 0.0, 7.0, 5.0, 4.0, 6.0]]))
        tensor([[3., 2., 0., 1., 7., 5., 4., 6.]])
    """

    def __init__(self, orientations: int) -> None:
        super().__init__()
        self.orientations = orientations

    def forward(self, input: Tensor) -> Tensor:
        x: Tensor = input.unflatten(1, (-1, self.orientations))
        places = torch.arange(self.orientations, device=x.device)
        return x.gather(2, (x.argmax(2, keepdim=True) + places) % self.orientations).flatten(1)

    def extra_repr(self) -> str:
        return f"orientations={self.orientations}"


class ORPool(nn.Module):
    r"""Keeps the strongest orientation of each feature.

    Args:
        orientations: the channels of each feature

    Shape:
        - Input: :math:`(N, \text{features} \times \text{orientations})`
        - Output: :math:`(N, \text{features})`
    """

    def __init__(self, orientations: int) -> None:
        super().__init__()
        self.orientations = orientations

    def forward(self, input: Tensor) -> Tensor:
        x: Tensor = input.unflatten(1, (-1, self.orientations))
        return x.amax(2)

    def extra_repr(self) -> str:
        return f"orientations={self.orientations}"
