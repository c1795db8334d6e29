"""WideResNet, with or without batch norm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn

from bipolar._activations.patterns import check_pattern
from bipolar._activations.registry import get_activation
from bipolar._tools.choices import Norm, Pattern, Shortcut
from bipolar.models._hub import HubMixin


@dataclass(frozen=True)
class Parts:
    """The parts of a residual network: factories of its convolutions, norms and activations, and its options."""

    #: From the number of input and output maps, kernel size and stride; with "same" padding.
    convolution: Callable[[int, int, int, int], nn.Module]
    #: From the number of maps.
    norm: Callable[[int], nn.Module]
    activation: Callable[[], nn.Module]
    dropout: float
    shortcut: Shortcut


class Block(nn.Module):
    r"""A pre-activation residual block: with :math:`a = f(\text{norm}(x))`,

    .. math::
        y = r + \text{conv}(\text{dropout}(f(\text{norm}(\text{conv}(a)))))

    where r is x, or a 1x1 convolution of a where the shape changes. With a rectified shortcut r is a instead of x: what
    an activation in place makes of x if there is no norm between.
    """

    def __init__(self, parts: Parts, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = parts.norm(inputs)
        self.activation1 = parts.activation()
        self.conv1 = parts.convolution(inputs, outputs, 3, stride)
        self.norm2 = parts.norm(outputs)
        self.activation2 = parts.activation()
        self.dropout = nn.Dropout(parts.dropout)
        self.conv2 = parts.convolution(outputs, outputs, 3, 1)
        self.projection = parts.convolution(inputs, outputs, 1, stride) if inputs != outputs or stride != 1 else None
        self.rectified = parts.shortcut == "rectified"

    def forward(self, x: Tensor) -> Tensor:
        a: Tensor = self.activation1(self.norm1(x))
        y: Tensor = self.activation2(self.norm2(self.conv1(a)))
        y = self.conv2(self.dropout(y))
        if self.projection is not None:
            x = self.projection(a)
        elif self.rectified:
            x = a
        return x + y


def stages(parts: Parts, maps: Sequence[int], blocks: int) -> nn.Sequential:
    """Three stages of blocks, the second and third at half the resolution of the one before."""
    return nn.Sequential(
        *(
            nn.Sequential(
                *(
                    Block(parts, maps[i] if j == 0 else maps[i + 1], maps[i + 1], 2 if i > 0 and j == 0 else 1)
                    for j in range(blocks)
                )
            )
            for i in range(3)
        )
    )


def blocks_of(depth: int) -> int:
    """The blocks of each stage of a network of so many layers."""
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"depth: expected 6n + 4 with n of at least 1 (10, 16, 22, 28, ...), got {depth}")
    return (depth - 4) // 6


def maps_of(widen_factor: int) -> list[int]:
    """The number of maps of the first layer and of each stage."""
    if widen_factor < 1:
        raise ValueError(f"widen_factor: expected at least 1, got {widen_factor}")
    return [16, 16 * widen_factor, 32 * widen_factor, 64 * widen_factor]


def check_options(
    num_classes: int, in_channels: int, dropout: float, norm: Norm | None, shortcut: Shortcut, pattern: Pattern
) -> None:
    check_pattern(pattern)
    for name, count in (("num_classes", num_classes), ("in_channels", in_channels)):
        if count < 1:
            raise ValueError(f"{name}: expected at least 1, got {count}")
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout: expected 0 to 1, got {dropout}")
    if norm not in (None, "batch"):
        raise ValueError(f"norm: expected None or 'batch', got {norm!r}")
    if shortcut not in get_args(Shortcut):
        raise ValueError(f"shortcut: expected one of {', '.join(map(repr, get_args(Shortcut)))}, got {shortcut!r}")
    if norm is not None and shortcut == "rectified":
        raise ValueError("shortcut: 'rectified' is what happens without a norm; use norm=None, or shortcut='clean'")


def activation_factory(name: str, pattern: Pattern) -> Callable[[], nn.Module]:
    """A factory of activations, of which bipolar ones flip whole feature maps."""

    def make() -> nn.Module:
        try:
            return get_activation(name, dim=1, pattern=pattern)
        except TypeError:
            return get_activation(name)

    try:
        example = make()
    except (ValueError, TypeError) as error:
        raise ValueError(f"activation: {str(error).removeprefix('name: ')}") from None
    if example(torch.zeros(1, 2, 1, 1, device="cpu")).size(1) != 2:
        raise ValueError(f"activation: expected one that keeps the number of channels, got {name!r}")
    return make


def norm_factory(norm: Norm | None, channels: int = 1) -> Callable[[int], nn.Module]:
    """A factory of norms over a number of maps, each of so many channels."""
    return (lambda maps: nn.Identity()) if norm is None else (lambda maps: nn.BatchNorm2d(maps * channels))


class WideResNet(nn.Module, HubMixin, library_name="bipolar", license="mit"):
    r"""A wide residual network with pre-activation, with or without batch norm.

    From Zagoruyko & Komodakis, `Wide Residual Networks <https://arxiv.org/abs/1605.07146>`_, 2016: a convolution, three
    stages of blocks with 16k, 32k and 64k feature maps, an average over each map, and a linear layer. Without a norm,
    initialise it with :func:`bipolar.lsuv_`; convolutions then have a bias, which the norm brought before.

    Args:
        depth: the number of layers, 6n + 4 with n blocks to a stage. Default: 28
        widen_factor: k. Default: 10
        num_classes: the number of classes. Default: 10
        activation: the activation by name, see :func:`bipolar.list_activations`; a bipolar one flips every second
            feature map. Default: ``"brelu"``
        dropout: the rate between the two convolutions of a block. Default: 0.3
        norm: ``None``, or ``"batch"``. Default: ``None``
        in_channels: the channels of an image. Default: 3
        shortcut: what passes by a block: ``"clean"``, its input x, or, to study a mistake, ``"rectified"``, f(x), which
            an activation in place makes of x if there is no norm between. Default: ``"clean"``
        pattern: which feature maps are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(N, \text{in\_channels}, H, W)`
        - Output: :math:`(N, \text{num\_classes})`

    Examples::

        >>> model = bipolar.models.WideResNet(depth=16, widen_factor=2)
        >>> images = torch.randn(8, 3, 32, 32)
        >>> report = bipolar.lsuv_(model, images)
        >>> model(images).shape
        torch.Size([8, 10])
    """

    def __init__(
        self,
        depth: int = 28,
        widen_factor: int = 10,
        num_classes: int = 10,
        activation: str = "brelu",
        dropout: float = 0.3,
        norm: Norm | None = None,
        in_channels: int = 3,
        *,
        shortcut: Shortcut = "clean",
        pattern: Pattern = "alternate",
    ) -> None:
        super().__init__()
        check_options(num_classes, in_channels, dropout, norm, shortcut, pattern)
        maps, blocks = maps_of(widen_factor), blocks_of(depth)

        def convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Module:
            conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=norm is None)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            if conv.bias is not None:
                nn.init.zeros_(conv.bias)
            return conv

        parts = Parts(convolution, norm_factory(norm), activation_factory(activation, pattern), dropout, shortcut)
        self.stem = convolution(in_channels, maps[0], 3, 1)
        self.stages = stages(parts, maps, blocks)
        self.norm = parts.norm(maps[-1])
        self.activation = parts.activation()
        self.head = nn.Linear(maps[-1], num_classes)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stages(self.stem(images))
        x = self.activation(self.norm(x)).mean(dim=(2, 3))
        output: Tensor = self.head(x)
        return output
