"""Views of an image to be tested."""

import torch
from torch import Tensor

from bipolar.lab.training.images.views import over_views


def corner(images: Tensor) -> Tensor:
    """A network that sees the upper left and the lower right pixel, squared."""
    return torch.stack([images[:, 0, 0, 0], images[:, 0, -1, -1]], dim=1).square()


def test_one_view_is_the_network() -> None:
    images = torch.randn(4, 3, 6, 5)
    assert torch.equal(over_views(corner, images, "one"), corner(images))


def test_mirrored() -> None:
    images = torch.randn(4, 3, 6, 5)
    expected = (corner(images) + corner(images.flip(3))) / 2
    torch.testing.assert_close(over_views(corner, images, "mirrored"), expected)
    torch.testing.assert_close(over_views(corner, images.flip(3), "mirrored"), expected)


def test_shifted_by_hand() -> None:
    x = torch.arange(12.0).view(1, 1, 3, 4)
    # reflected: the row above the first is the second, the column before the first is the second
    upper_left = torch.tensor([[5.0, 4, 5, 6], [1, 0, 1, 2], [5, 4, 5, 6]]).view(1, 1, 3, 4)
    lower_right = torch.tensor([[5.0, 6, 7, 6], [9, 10, 11, 10], [5, 6, 7, 6]]).view(1, 1, 3, 4)
    parts = [(x, 0.25), (upper_left, 0.125), (lower_right, 0.125)]
    expected = sum(weight * (corner(part) + corner(part.flip(3))) for part, weight in parts)
    torch.testing.assert_close(over_views(corner, x, "shifted"), expected)
    constant = torch.full((2, 3, 8, 8), 3.0)
    torch.testing.assert_close(over_views(corner, constant, "shifted"), corner(constant))
