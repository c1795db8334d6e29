"""Random tensors and small models, the awkward ones among them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
OTHERS = (torch.int64, torch.uint8, torch.bool, torch.complex64)
SIZES = (0, 1, 1, 2, 2, 3, 4, 5, 8)
AWKWARD = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e-30, -1e-8, 1e30, 65000.0)
#: More elements than any machine has memory for.
HUGE = 1 << 42


def a_shape(random: Random, least: int = 0, most: int = 4) -> tuple[int, ...]:
    return tuple(random.choice(SIZES) for _ in range(random.randint(least, most)))


def a_tensor(random: Random, shape: tuple[int, ...] | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor of any shape, dtype and layout, with awkward values in it now and then."""
    shape = a_shape(random) if shape is None else shape
    if dtype is None:
        dtype = random.choice(FLOATS if random.random() < 0.85 else OTHERS)
    if random.random() < 0.02:
        return torch.zeros(1, dtype=dtype).expand(2, HUGE)
    if random.random() < 0.03:
        return torch.empty(shape, dtype=dtype, device="meta")
    values = torch.randn(shape, dtype=torch.float64) * random.choice((0.1, 1.0, 1.0, 10.0))
    if values.numel() and random.random() < 0.3:
        for _ in range(random.randint(1, 4)):
            values.view(-1)[random.randrange(values.numel())] = random.choice(AWKWARD)
    return laid_out(random, values.to(dtype))


def laid_out(random: Random, tensor: Tensor) -> Tensor:
    """The same values in another memory layout."""
    kind = random.choice(("plain", "plain", "strided", "transposed", "channels last", "offset", "expanded"))
    if kind == "strided" and tensor.ndim:
        return torch.stack([tensor, tensor], -1).flatten(-2)[..., ::2]
    if kind == "transposed" and tensor.ndim > 1:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if kind == "channels last" and tensor.ndim == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    if kind == "offset" and tensor.ndim:
        return torch.cat([tensor.flatten()[:1], tensor.flatten()])[min(1, tensor.numel()) :].view(tensor.shape)
    if kind == "expanded" and tensor.ndim and tensor.size(0):
        return tensor[:1].expand(tensor.shape)
    return tensor


ACTIVATIONS: tuple[type[nn.Module], ...] = (
    *(nn.ReLU, nn.ReLU, nn.ELU, nn.LeakyReLU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Softplus, nn.Mish, nn.Hardswish),
    *(nn.ReLU6, nn.RReLU, nn.Tanh, nn.Sigmoid, nn.Softsign, nn.Hardtanh, nn.Identity),
)


@dataclass
class SmallModel:
    """A sequence of layers, an input for it, and the channel dimension of each activation by name."""

    module: nn.Sequential
    example: Tensor
    channels: dict[str, int] = field(default_factory=dict)


def a_model(random: Random, dtype: torch.dtype = torch.float32) -> SmallModel:
    """A network of linear layers or of convolutions, sound or not quite."""
    layers: list[nn.Module] = []
    channels: dict[str, int] = {}
    kind = random.choice(("features", "sequences", "lines", "images"))
    width = random.choice((1, 2, 3, 4, 6))
    batch = random.choice((1, 2, 5, 16, 64))
    shape = {"features": (batch, width), "sequences": (batch, 3, width), "lines": (batch, width, 9)}.get(
        kind, (batch, width, 6, 6)
    )
    dim = -1 if kind in ("features", "sequences") else 1
    for _ in range(random.randint(1, 4)):
        new = random.choice((1, 2, 4, 5, 8))
        bias = random.random() < 0.7
        groups = random.choice([g for g in (1, 1, 2, 4) if width % g == 0 and new % g == 0])
        if dim == -1:
            layers.append(nn.Linear(width, new, bias=bias))
        elif kind == "lines":
            layers.append(nn.Conv1d(width, new, 3, padding=1, groups=groups, bias=bias))
        else:
            layers.append(nn.Conv2d(width, new, 3, padding=1, groups=groups, bias=bias))
        width = new
        if random.random() < 0.2:
            layers.append(_a_norm(random, kind, width))
        if random.random() < 0.8:
            channels[str(len(layers))] = dim
            activation = random.choice(ACTIVATIONS)
            layers.append(nn.PReLU(width if dim == 1 else 1) if random.random() < 0.05 else activation())
        if random.random() < 0.15:
            layers.append(nn.Dropout(0.2))
        if kind == "images" and random.random() < 0.2:
            layers.append(random.choice((nn.MaxPool2d, nn.AvgPool2d))(2, ceil_mode=True))
        if dim == 1 and random.random() < 0.15:
            layers += [nn.AdaptiveAvgPool1d(1) if kind == "lines" else nn.AdaptiveAvgPool2d(1), nn.Flatten()]
            dim, kind = -1, "features"
    return SmallModel(nn.Sequential(*layers).to(dtype), torch.randn(shape, dtype=dtype), channels)


def _a_norm(random: Random, kind: str, width: int) -> nn.Module:
    if kind == "sequences":
        return random.choice((nn.LayerNorm, nn.RMSNorm))(width)
    if kind == "features":
        return random.choice((nn.BatchNorm1d, nn.LayerNorm))(width)
    batch_norm = nn.BatchNorm1d if kind == "lines" else nn.BatchNorm2d
    return random.choice((batch_norm(width), nn.GroupNorm(1, width), nn.GroupNorm(width, width)))


def mostly(random: Random, right: Sequence[Any], wrong: Sequence[Any], share: float = 0.06) -> Any:
    """One of the right values, and now and then a wrong one."""
    return random.choice(wrong if random.random() < share else right)


def a_pattern(random: Random) -> Any:
    return mostly(random, ("alternate", "halves"), ("Halves", None, 3, ["halves"]))
