"""A plain convolutional network for small budgets."""

from itertools import pairwise

from torch import Tensor, nn

from bipolar._tools.choices import Norm, Pattern
from bipolar.models._hub import HubMixin
from bipolar.models._wide_resnet import activation_factory, check_options, norm_factory

#: The maps of the first layer: a whitening of 2x2 pixels of 3 channels has 12, and each with both signs.
STEM = 24


class ConvNet(nn.Module, HubMixin, library_name="bipolar", license="mit"):
    r"""A few wide convolutions with pooling, for small budgets, with or without batch norm.

    In the manner of the networks with which people race to a given accuracy on CIFAR-10 (Jordan, `94% on CIFAR-10 in
    3.29 seconds on a single GPU <https://arxiv.org/abs/2404.00498>`_, 2024): a convolution of 2x2 pixels, three blocks,
    the largest value of each map, and a linear layer. A block halves the resolution:

    .. math::
        h = f(\text{norm}(\text{maxpool}(\text{conv}(x)))), \qquad y = f(\text{norm}(\text{conv}(h)))

    and with ``skip`` it goes on by :math:`h + y`. Without a norm, initialise the network with :func:`bipolar.lsuv_`;
    convolutions then have a bias, which the norm brought before. Max pooling does not commute with signs: with bipolar
    activations the network is more than a plain one with some weights' signs flipped.

    Args:
        widen_factor: k; the blocks have 16k, 64k and 64k maps. Default: 4
        num_classes: the number of classes. Default: 10
        activation: the activation by name, see :func:`bipolar.list_activations`. Default: ``"elu"``
        norm: ``None``, or ``"batch"``. Default: ``None``
        in_channels: the channels of an image. Default: 3
        skip: whether a skip connection goes around the second convolution of a block. Default: ``False``
        pattern: which feature maps are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``

    Shape:
        - Input: :math:`(N, \text{in\_channels}, H, W)` with H and W of at least 5
        - Output: :math:`(N, \text{num\_classes})`

    Examples::

        >>> model = bipolar.models.ConvNet(widen_factor=1)
        >>> images = torch.randn(8, 3, 32, 32)
        >>> report = bipolar.lsuv_(model, images, target="second_moment")
        >>> model(images).shape
        torch.Size([8, 10])
    """

    def __init__(
        self,
        widen_factor: int = 4,
        num_classes: int = 10,
        activation: str = "elu",
        norm: Norm | None = None,
        in_channels: int = 3,
        *,
        skip: bool = False,
        pattern: Pattern = "alternate",
    ) -> None:
        super().__init__()
        check_options(num_classes, in_channels, 0.0, norm, "clean", pattern)
        if widen_factor < 1:
            raise ValueError(f"widen_factor: expected at least 1, got {widen_factor}")
        self.skip = skip
        make_norm, make_activation = norm_factory(norm), activation_factory(activation, pattern)

        def convolution(inputs: int, outputs: int) -> nn.Conv2d:
            return nn.Conv2d(inputs, outputs, 3, padding=1, bias=norm is None)

        def down(inputs: int, outputs: int, last: bool) -> nn.Sequential:
            pool = nn.MaxPool2d(2, ceil_mode=last)  # the last takes a single pixel, too: images may be small
            return nn.Sequential(convolution(inputs, outputs), pool, make_norm(outputs), make_activation())

        def same(maps: int) -> nn.Sequential:
            return nn.Sequential(convolution(maps, maps), make_norm(maps), make_activation())

        self.stem = nn.Conv2d(in_channels, STEM, 2)
        self.activation = make_activation()
        maps = [STEM, 16 * widen_factor, 64 * widen_factor, 64 * widen_factor]
        self.downs = nn.ModuleList(down(*pair, last=i == 2) for i, pair in enumerate(pairwise(maps)))
        self.sames = nn.ModuleList(same(outputs) for outputs in maps[1:])
        self.head = nn.Linear(maps[-1], num_classes)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.activation(self.stem(images))
        for down, same in zip(self.downs, self.sames, strict=True):
            h = down(x)
            x = h + same(h) if self.skip else same(h)
        output: Tensor = self.head(x.amax(dim=(2, 3)))
        return output
