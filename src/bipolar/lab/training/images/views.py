"""Views of an image to be tested: as it is, in the mirror, shifted; their predictions are averaged."""

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import pad

from bipolar.lab.training.images.config import Views

#: The corners of an image, to which it is shifted by a pixel.
CORNERS = ((0, 0), (2, 2))


def over_views(network: Callable[[Tensor], Tensor], images: Tensor, views: Views) -> Tensor:
    """The logits of images (N, C, H, W), averaged over views of each.

    ``"mirrored"``: the image and its mirror image. ``"shifted"``: half the weight to these two, and half to both of
    them shifted by a pixel to the upper left and to the lower right, which is the test-time augmentation of the
    CIFAR-10 speed runs (Jordan, https://arxiv.org/abs/2404.00498).
    """
    if views == "one":
        return network(images)
    logits = (network(images) + network(images.flip(3))) / 2
    if views == "mirrored":
        return logits
    height, width = images.shape[2:]
    around = pad(images, (1, 1, 1, 1), mode="reflect")
    shifted = [around[:, :, y : y + height, x : x + width] for y, x in CORNERS]
    return logits / 2 + sum(over_views(network, image, "mirrored") for image in shifted) / (2 * len(shifted))
