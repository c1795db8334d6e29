"""Images of one's own: a directory with a folder for each class, as torchvision's ``ImageFolder`` takes them.

If the directory has the folders ``train`` and ``test``, the folders of the classes are in these. Else a fifth of each
class, drawn with a fixed seed, is for testing.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from bipolar.lab.data.pictures import Pictures
from bipolar.lab.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
#: Modes of Pillow for images without colour, and for those of more than eight bits, which it would cut off.
GREY, DEEP = ("1", "L", "LA"), ("I", "F", "I;16", "I;16B", "I;16L")
#: The share of each class for testing, and the seed of its draw.
TEST_SHARE, SEED = 0.2, 0


def read_folder(path: Path, image_size: int | None) -> tuple[Pictures, Pictures, tuple[str, ...]]:
    """The images to train on, those to test on, and the names of the classes.

    With ``image_size`` the shorter side of an image gets that length, and the middle of the longer one is kept;
    without, all images need the same size. They have one channel if none has colour.
    """
    divided = (path / "train").is_dir() and (path / "test").is_dir()
    train = _files(path / "train" if divided else path)
    classes = tuple(train)
    if len(classes) < 2:
        raise UsageError(
            f"--data {path}: expected a folder for each class, two at least, with images in it ("
            f"{', '.join(SUFFIXES)}), or these in the folders train and test; found {', '.join(classes) or 'none'}"
        )
    if divided:
        test = _files(path / "test")
        unknown = sorted(set(test) - set(train))
        if unknown or not test:
            raise UsageError(f"--data {path}: test/{unknown[0] if unknown else ''} has no folder like it in train")
    else:
        train, test = _parted(train)
    reader = _Reader([file for part in (train, test) for files in part.values() for file in files], image_size)
    return reader.read(train, classes), reader.read(test, classes), classes


def _files(path: Path) -> dict[str, list[Path]]:
    """The images of each class, by its name; those in folders within count, too."""
    folders = sorted(folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    found = {
        folder.name: sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        for folder in folders
    }
    return {name: files for name, files in found.items() if files}


def _parted(files: dict[str, list[Path]]) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    train, test = dict[str, list[Path]](), dict[str, list[Path]]()
    generator = torch.Generator().manual_seed(SEED)
    for name, of_class in files.items():
        if len(of_class) < 2:
            raise UsageError(f"--data: {of_class[0].parent} has one image; expected two, to train and to test")
        count = max(1, round(TEST_SHARE * len(of_class)))
        chosen = set(torch.randperm(len(of_class), generator=generator)[:count].tolist())
        test[name] = [file for i, file in enumerate(of_class) if i in chosen]
        train[name] = [file for i, file in enumerate(of_class) if i not in chosen]
    return train, test


class _Reader:
    """Reads images to one size and one number of channels."""

    def __init__(self, files: Iterable[Path], image_size: int | None) -> None:
        self.image_size = image_size
        sizes, modes = set[tuple[int, int]](), set[str]()
        for file in files:  # their heads alone
            with _opened(file) as image:
                if image.mode in DEEP:
                    raise UsageError(f"{file}: expected eight bits for each channel, got an image of mode {image.mode}")
                sizes.add(image.size)
                modes.add(image.mode)
        if image_size is None and len(sizes) > 1:
            one, other, *_ = sorted(sizes)
            raise UsageError(
                f"--image-size: the images have different sizes, such as {one[0]}x{one[1]} and {other[0]}x{other[1]}; "
                "say to which size to bring them all, such as --image-size 32"
            )
        self.mode = "L" if modes <= set(GREY) else "RGB"

    def read(self, files: dict[str, list[Path]], classes: tuple[str, ...]) -> Pictures:
        labels = [classes.index(name) for name, of_class in files.items() for _ in of_class]
        arrays = [self._array(file) for of_class in files.values() for file in of_class]
        images = torch.from_numpy(np.stack(arrays))
        return Pictures(images if images.dim() == 4 else images.unsqueeze(3), torch.tensor(labels))

    def _array(self, file: Path) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
        from PIL import Image, ImageOps

        with _opened(file) as opened:
            try:
                image = ImageOps.exif_transpose(opened).convert(self.mode)
            except Exception as error:  # cut off, broken or too large: Pillow raises errors of many types
                raise UsageError(f"{file}: not an image that can be read ({error}); remove it") from None
        if self.image_size is not None:
            side = (self.image_size, self.image_size)
            image = ImageOps.fit(image, side, Image.Resampling.BILINEAR)
        return np.asarray(image, np.uint8)


def _opened(file: Path) -> "Image":
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise UsageError("--data: to read images takes Pillow: pip install 'bipolar[lab]'") from None
    try:
        return Image.open(file)
    except Exception as error:  # not an image, or one of so many pixels that no memory may hold it
        raise UsageError(f"{file}: not an image that can be read ({error}); remove it") from None
