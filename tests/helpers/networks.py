"""Small networks that the tests of conversion and folding share: common ones, and awkward ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from bipolar._activations.patterns import Pattern

IMAGES = (4, 3, 8, 8)


class Residual(nn.Module):
    """x + f(x), with an activation that both branches could see."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Concatenated(nn.Module):
    """Two branches side by side."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class SqueezeExcitation(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        gate: Tensor = torch.sigmoid(self.excite(self.activation(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return x * gate


class SharedActivation(nn.Module):
    """One module, at several widths and ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.wide, self.narrow = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 6, 3, padding=1)
        self.hidden, self.head = nn.Linear(6, 10), nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.narrow(self.act(self.wide(x)))).mean((2, 3))
        out: Tensor = self.head(self.act(self.hidden(x)))
        return out


class Functional(nn.Module):
    """Activations and dropout that are called as functions, in three spellings."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3), nn.Conv2d(6, 6, 1)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        x = tF.relu(self.a(x))
        x = tF.dropout(torch.relu(self.b(x)), 0.1, self.training)
        x = self.c(x).relu() * scale
        out: Tensor = self.head(x.mean((2, 3)))
        return out


class Dynamic(nn.Module):
    """What fx cannot trace: the number of rounds depends on the shape."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.act = nn.Linear(4, 6), nn.ReLU()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.stem(x))
        for _ in range(int(x.shape[0])):
            x = tF.relu(self.inner(x))
        out: Tensor = self.head(x)
        return out


class ValueDependent(nn.Module):
    """Another layer runs if the values are large."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.act = nn.Linear(4, 6), nn.ReLU()
        self.small, self.large = nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.stem(x))
        out: Tensor = self.large(x) if x.sum() > 1e6 else self.small(x)
        return out


class Tied(nn.Module):
    """An embedding whose weight is the decoder's, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.up, self.act, self.down = nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        return (x + self.down(self.act(self.up(x)))) @ self.embed.weight.t()


class ChannelsLast(nn.Module):
    """As in ConvNeXt: a depthwise convolution, then linear layers on (N, H, W, C), and a learned scale."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 6, 2, stride=2), nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.up, self.act, self.down = nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6)
        self.scale, self.head = nn.Parameter(torch.full((6,), 0.1)), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.scale * self.down(self.act(self.up(y)))
        out: Tensor = self.head((x + y.permute(0, 3, 1, 2)).mean((2, 3)))
        return out


class NormResNet(nn.Module):
    """Residual blocks as they are usually written: batch norm, ReLU in place, convolutions without a bias."""

    def __init__(self, channels: int = 8, blocks: int = 2, classes: int = 10, in_channels: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(PreActivation(channels) for _ in range(blocks))
        self.norm, self.relu = nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.relu(self.norm(x)).mean((2, 3)))
        return out


class PreActivation(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.relu1, self.relu2 = nn.ReLU(inplace=True), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(self.relu1(self.norm1(x)))
        out: Tensor = x + self.conv2(self.relu2(self.norm2(y)))
        return out


def head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 4)]


@dataclass(frozen=True)
class NetworkCase:
    """A network, an input for it, and whether its activations, made bipolar, can all be folded away."""

    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    holds: bool
    #: what breaks the symmetry: a part of the reason
    because: str = ""


def images() -> Tensor:
    return torch.randn(IMAGES)


NETWORKS: dict[str, NetworkCase] = {
    "perceptron": NetworkCase(
        lambda: nn.Sequential(nn.Linear(4, 9), nn.ELU(), nn.Linear(9, 7), nn.SELU(), nn.Linear(7, 2)),
        lambda: torch.randn(5, 4),
        True,
    ),
    "features last": NetworkCase(
        lambda: nn.Sequential(nn.Linear(4, 9), nn.SiLU(), nn.Linear(9, 2)), lambda: torch.randn(5, 3, 4), True
    ),
    "nested, with batch norm and dropout": NetworkCase(
        lambda: nn.Sequential(
            nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Sequential(nn.ReLU(), nn.Dropout(0.3))),
            nn.Sequential(nn.Conv2d(6, 5, 3), nn.LeakyReLU(0.2), nn.AvgPool2d(2), *head(5)),
        ),
        images,
        True,
    ),
    "residual": NetworkCase(
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3),
            Residual(nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 1)),
            Residual(nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1)),
            nn.ReLU(),
            *head(6),
        ),
        images,
        True,
    ),
    "concatenation": NetworkCase(
        lambda: nn.Sequential(
            Concatenated(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), nn.Sequential(nn.Conv2d(3, 5, 1), nn.ReLU())),
            nn.Conv2d(9, 6, 3),
            nn.ReLU(),
            *head(6),
        ),
        images,
        True,
    ),
    "a concatenation that an activation sees": NetworkCase(
        lambda: nn.Sequential(
            Concatenated(nn.Conv2d(3, 3, 1), nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())), nn.ReLU(), *head(7)
        ),
        images,
        False,
        "another pattern",  # channel 0 of the second branch is channel 3 of the whole
    ),
    "grouped and depthwise": NetworkCase(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 1),
            nn.ReLU(),
            nn.Conv2d(8, 12, 3, groups=4),
            nn.ReLU(),
            nn.Conv2d(12, 12, 3, groups=12),
            nn.ReLU6(),
            *head(12),
        ),
        images,
        True,
    ),
    "transposed": NetworkCase(
        lambda: nn.Sequential(
            nn.ConvTranspose2d(3, 6, 2, stride=2),
            nn.ReLU(),
            nn.ConvTranspose2d(6, 8, 3, groups=2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            *head(8),
        ),
        images,
        True,
    ),
    "one dimension": NetworkCase(
        lambda: nn.Sequential(
            nn.Conv1d(3, 6, 3),
            nn.CELU(0.5),
            nn.Upsample(scale_factor=2),
            nn.Conv1d(6, 5, 3),
            nn.Softplus(),
            nn.Flatten(),
            nn.Linear(60, 2),
        ),
        lambda: torch.randn(2, 3, 9),
        True,
    ),
    "flattened": NetworkCase(
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 5), nn.ReLU(), nn.Linear(5, 2)
        ),
        images,
        True,
    ),
    "an activation after the flattening": NetworkCase(
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.Flatten(), nn.ReLU(), nn.Linear(216, 2)), images, False, "one sign"
    ),
    "channel shuffle": NetworkCase(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 1), nn.ReLU(), nn.ChannelShuffle(2), nn.Conv2d(8, 8, 1, groups=2), nn.ReLU(), *head(8)
        ),
        images,
        True,
    ),
    "pixel shuffle": NetworkCase(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 1), nn.ReLU(), nn.PixelShuffle(2), nn.Conv2d(2, 4, 1), nn.ReLU(), *head(4)
        ),
        images,
        False,
        "one sign",
    ),
    "max pooling": NetworkCase(
        lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1), nn.ReLU(), *head(4)),
        images,
        False,
        "2 (max_pool2d): it takes a maximum",
    ),
    "LayerNorm": NetworkCase(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)),
        lambda: torch.randn(5, 4),
        False,
        "2 (layer_norm): it takes a mean over channels",
    ),
    "RMSNorm": NetworkCase(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.RMSNorm(8), nn.Linear(8, 2)),
        lambda: torch.randn(5, 4),
        True,
    ),
    "instance norm": NetworkCase(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 1),
            nn.InstanceNorm2d(8, affine=True),
            nn.ReLU(),
            nn.Conv2d(8, 6, 1),
            nn.GroupNorm(6, 6),
            nn.ReLU(),
            *head(6),
        ),
        images,
        True,
    ),
    "the output itself": NetworkCase(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU()),
        lambda: torch.randn(5, 4),
        False,
        "the model's output: its signs must not change",
    ),
    "PReLU": NetworkCase(
        lambda: nn.Sequential(nn.Conv2d(3, 6, 1), nn.PReLU(6), nn.Conv2d(6, 5, 1), nn.PReLU(), *head(5)), images, True
    ),
    "between odd activations": NetworkCase(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Softsign(), nn.Linear(8, 2)),
        lambda: torch.randn(5, 4),
        True,
    ),
    "padded shortcut": NetworkCase(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 1), nn.ReLU(), nn.ConstantPad3d((0, 0, 0, 0, 0, 3), 0.0), nn.ReLU(), *head(7)
        ),
        images,
        True,
    ),
    "squeeze and excitation": NetworkCase(
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 1), nn.ReLU(), SqueezeExcitation(6), nn.Conv2d(6, 4, 1), nn.ReLU(), *head(4)
        ),
        images,
        True,
    ),
    "one activation for all": NetworkCase(SharedActivation, images, True),
    "functions": NetworkCase(Functional, images, True),
    "tied weights": NetworkCase(Tied, lambda: torch.randint(11, (3, 5)), True),
    "features last, after a permutation": NetworkCase(ChannelsLast, images, True),
    "batch norm before each activation": NetworkCase(lambda: NormResNet(in_channels=3), images, True),
}


def converted(name: str, pattern: Pattern = "alternate") -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    case = NETWORKS[name]
    example = case.example()
    return bipolar.convert(case.build(), example=example, pattern=pattern).eval(), example


def kinds(model: nn.Module) -> set[str]:
    return {type(m).__name__ for m in model.modules()}


#: Options of a small WideResNet or OrientedResponseNet.
SMALL: dict[str, Any] = {"depth": 10, "widen_factor": 1, "dropout": 0.0}


def small_images(count: int = 4, side: int = 8, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, 3, side, side, dtype=dtype, generator=torch.Generator().manual_seed(0))
