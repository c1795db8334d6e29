"""Data sets of images: CIFAR-10, the digits that come with scikit-learn, or a directory of one's own."""

import hashlib
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bipolar.lab.data.files import CIFAR10, fetch
from bipolar.lab.data.folders import SEED, read_folder
from bipolar.lab.data.pictures import Pictures
from bipolar.lab.data.places import IMAGES, data_directory, own_data
from bipolar.lab.errors import UsageError

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
#: An image of one's own may be shifted by its side divided by this, as one of CIFAR-10.
SHIFTED = 8


@dataclass(frozen=True)
class ImageSet:
    """A data set, with the statistics of its training images and how they may be varied."""

    name: str
    train: Pictures
    test: Pictures
    #: of each channel, on the scale of bytes, 0 to 255
    mean: Tensor
    std: Tensor
    #: the names of the classes
    classes: tuple[str, ...]
    #: by how many pixels an image may be shifted
    shift: int
    #: whether an image may be mirrored
    mirror: bool

    @property
    def channels(self) -> int:
        return self.train.images.size(3)

    def digest(self) -> str:
        """The digest of all images and classes, which tells whether they are still the same."""
        state = hashlib.sha256("/".join(self.classes).encode())
        for part in (self.train, self.test):
            state.update(part.images.contiguous().numpy().data)
            state.update(part.labels.numpy().data)
        return state.hexdigest()

    def normalised(self, images: Tensor) -> Tensor:
        """Images as the network takes them: (number, channels, height, width), in the memory format channels-last."""
        mean, scale = self.mean.to(images.device), 1 / self.std.to(images.device)
        return images.float().sub_(mean).mul_(scale).permute(0, 3, 1, 2)

    def varied(
        self, pictures: Pictures, chosen: Tensor, generator: torch.Generator, part: slice = slice(None)
    ) -> Tensor:
        """Chosen pictures, each shifted and mirrored at random; reflection fills the border that a shift uncovers.

        One index operation fetches all pixels. Only ``part`` of the batch is made, but random numbers are drawn for
        all of it, so that a batch is the same however many processes share it.
        """
        images = pictures.images
        height, width, channels = images.shape[1:]

        def draw(low: int, high: int) -> Tensor:
            drawn = torch.randint(low, high, (len(chosen), 1), generator=generator, device=generator.device)
            return drawn[part].to(images.device)

        def lines(length: int) -> Tensor:
            position = (torch.arange(length, device=images.device) + draw(-self.shift, self.shift + 1)).abs()
            return torch.where(position < length, position, 2 * (length - 1) - position)

        rows, columns = lines(height), lines(width)
        if self.mirror:
            columns = torch.where(draw(0, 2).bool(), columns.flip(1), columns)
        lines_of = chosen[part].to(images.device)[:, None] * height + rows
        pixels = lines_of[:, :, None] * width + columns[:, None, :]
        return images.view(-1, channels).index_select(0, pixels.flatten()).view(-1, height, width, channels)


def load_images(
    data: str,
    data_dir: Path | None = None,
    train_images: int | None = None,
    *,
    image_size: int | None = None,
    mirror: bool = True,
    shift: int | None = None,
) -> ImageSet:
    """A data set by name, ``cifar10``, found in the data directory or downloaded, or ``digits``; or a directory with a
    folder for each class, see :mod:`~bipolar.lab.data.folders`.

    With ``train_images`` only so many are taken, the first ones; mean and deviation are those of all. ``mirror=False``
    is for images that mean something else in a mirror; ``shift`` is the number of pixels by which one may be shifted,
    by default an eighth of its side.
    """
    if data in IMAGES and image_size is not None:
        raise UsageError(f"--image-size {image_size}: the images of {data} have a size of their own; leave it out")
    if data == "cifar10":
        parts = [_read_cifar10(path) for path in fetch(CIFAR10, data_directory(data_dir))]
        found = _with_statistics(data, _joined(parts[:-1]), parts[-1], CIFAR10_CLASSES, shift=4, mirror=mirror)
    elif data == "digits":
        found = _digits()
    else:
        found = _own(data, data_dir, image_size, mirror)
    if train_images is not None and not 0 < train_images <= len(found.train):
        raise UsageError(f"--train-images {train_images}: expected 1 to {len(found.train)}")
    side = min(found.train.images.shape[1:3])
    if shift is not None and not 0 <= shift < side:
        raise UsageError(f"--shift {shift}: expected 0 to {side - 1}, less than the side of an image")
    return replace(found, train=found.train.first(train_images), shift=found.shift if shift is None else shift)


def _own(data: str, data_dir: Path | None, image_size: int | None, mirror: bool) -> ImageSet:
    train, test, classes = read_folder(own_data(data, data_dir, IMAGES, "directory"), image_size)
    # in one order of the classes, the first images would be those of one class
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(SEED))
    train = Pictures(train.images[order], train.labels[order])
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(SEED))
    test = Pictures(test.images[order], test.labels[order])
    shift = max(1, min(train.images.shape[1:3]) // SHIFTED)
    return _with_statistics(Path(data).name, train, test, classes, shift=shift, mirror=mirror)


def _read_cifar10(path: Path) -> Pictures:
    """The official binary format: for each image a byte for its class, then red, green and blue, row by row."""
    rows = torch.from_numpy(np.fromfile(path, np.uint8)).view(-1, 1 + 3 * 32 * 32)
    return Pictures(rows[:, 1:].view(-1, 3, 32, 32).permute(0, 2, 3, 1).contiguous(), rows[:, 0].long())


def _digits() -> ImageSet:
    """Handwritten digits, 8x8, from the wheel of scikit-learn; every fifth is kept for testing."""
    # its file alone: to import scikit-learn takes as long as to import torch
    path = metadata.distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = torch.from_numpy(np.loadtxt(str(path), np.uint8, delimiter=","))
    images = rows[:, :-1].view(-1, 8, 8, 1).mul(15)  # from 0 to 16, to bytes
    labels = rows[:, -1].long()
    test = torch.arange(len(labels)) % 5 == 4
    train, rest = Pictures(images[~test], labels[~test]), Pictures(images[test], labels[test])
    return _with_statistics(
        "digits", train, rest, tuple("0123456789"), shift=1, mirror=False
    )  # mirrored, a digit is no digit


def _joined(parts: list[Pictures]) -> Pictures:
    return Pictures(torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts]))


def _with_statistics(
    name: str, train: Pictures, test: Pictures, classes: tuple[str, ...], shift: int, mirror: bool
) -> ImageSet:
    # from a histogram of the 256 values: exact, and without a copy of the images in floating point
    values = torch.arange(256, dtype=torch.float64)
    channels = train.images.reshape(-1, train.images.size(3)).unbind(1)
    shares = torch.stack([torch.bincount(channel, minlength=256).double() / channel.numel() for channel in channels])
    mean = shares @ values
    std = (shares @ values.square() - mean.square()).sqrt()
    return ImageSet(name, train, test, mean.float(), std.float().clamp(min=1.0), classes, shift, mirror)
