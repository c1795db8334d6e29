"""OrientedResponseNet: a WideResNet of active rotating filters."""

from torch import Tensor, nn

from bipolar._tools.choices import Encoding, Norm, Pattern, Shortcut
from bipolar.models._hub import HubMixin
from bipolar.models._oriented import ORAlign, ORConv2d, OrientedActivation, ORPool
from bipolar.models._wide_resnet import (
    Parts,
    activation_factory,
    blocks_of,
    check_options,
    maps_of,
    norm_factory,
    stages,
)


class OrientedResponseNet(nn.Module, HubMixin, library_name="bipolar", license="mit"):
    r"""A wide residual network whose features have orientations.

    From Zhou, Ye, Qiu & Jiao, `Oriented Response Networks <https://arxiv.org/abs/1701.01833>`_, 2017: the convolutions
    of a :class:`WideResNet` become :class:`ORConv2d`, the first one giving an image its orientations, and before the
    linear layer each feature is aligned. With 8 orientations and a quarter of the maps as features the network has half
    the parameters of its WideResNet: ORN-28-10(1/2), the default, with 18.2 million.

    Args:
        depth, widen_factor, num_classes, dropout, norm, in_channels, shortcut: as for :class:`WideResNet`
        activation: the activation by name; a bipolar one flips every second *feature*, with all its orientations.
            Default: ``"brelu"``
        orientations: 4 or 8. Default: 8
        reduction: the number of features is that of the WideResNet's maps divided by this. Default: 4
        encoding: ``"align"`` for :class:`ORAlign`, ``"pool"`` for :class:`ORPool`, or ``None`` for neither.
            Default: ``"align"``
        pattern: which features are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(N, \text{in\_channels}, H, W)`
        - Output: :math:`(N, \text{num\_classes})`

    Examples::

        >>> model = bipolar.models.OrientedResponseNet(depth=10, widen_factor=1)
        >>> model(torch.randn(8, 3, 32, 32)).shape
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
        orientations: int = 8,
        reduction: int = 4,
        encoding: Encoding | None = "align",
        shortcut: Shortcut = "clean",
        pattern: Pattern = "alternate",
    ) -> None:
        super().__init__()
        check_options(num_classes, in_channels, dropout, norm, shortcut, pattern)
        maps, blocks = maps_of(widen_factor), blocks_of(depth)
        if reduction < 1 or any(count % reduction for count in maps):
            raise ValueError(f"reduction: expected a divisor of {maps[0]}, got {reduction}")
        if encoding not in ("align", "pool", None):
            raise ValueError(f"encoding: expected 'align', 'pool' or None, got {encoding!r}")
        features = [count // reduction for count in maps]
        make = activation_factory(activation, pattern)

        def convolution(inputs: int, outputs: int, kernel: int, stride: int, in_orientations: int = 0) -> nn.Module:
            return ORConv2d(
                inputs,
                outputs,
                kernel,
                in_orientations=in_orientations or orientations,
                orientations=orientations,
                stride=stride,
                padding=kernel // 2,
                bias=norm is None,
            )

        parts = Parts(
            convolution,
            norm_factory(norm, orientations),
            lambda: OrientedActivation(make(), orientations),
            dropout,
            shortcut,
        )
        self.stem = convolution(in_channels, features[0], 3, 1, in_orientations=1)
        self.stages = stages(parts, features, blocks)
        self.norm = parts.norm(features[-1])
        self.activation = parts.activation()
        self.encoding: nn.Module = nn.Identity()
        if encoding is not None:
            self.encoding = ORAlign(orientations) if encoding == "align" else ORPool(orientations)
        self.head = nn.Linear(features[-1] * (1 if encoding == "pool" else orientations), num_classes)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stages(self.stem(images))
        x = self.activation(self.norm(x)).mean(dim=(2, 3))
        output: Tensor = self.head(self.encoding(x))
        return output
