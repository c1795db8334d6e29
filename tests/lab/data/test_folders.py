"""Images of one's own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bipolar.lab.data.folders import read_folder
from bipolar.lab.data.images import load_images
from bipolar.lab.errors import UsageError


def save(path: Path, height: int = 4, width: int = 4, mode: str = "L", value: int = 7) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (width, height), value if mode == "L" else (value, 0, 0)).save(path)


def test_a_fifth_of_each_class_is_for_testing(tmp_path: Path) -> None:
    for number in range(10):
        save(tmp_path / "a" / f"{number}.png", value=number)
    for number in range(5):
        save(tmp_path / "b" / "deeper" / f"{number}.PNG", value=100 + number)
    (tmp_path / "b" / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    train, test, classes = read_folder(tmp_path, None)
    assert classes == ("a", "b")
    assert (train.labels.tolist(), test.labels.tolist()) == ([0] * 8 + [1] * 4, [0, 0, 1])
    values = torch.cat((train.images, test.images))[:, 0, 0, 0].tolist()
    assert sorted(values) == [*range(10), *range(100, 105)]
    again, *_ = read_folder(tmp_path, None)
    assert torch.equal(again.images, train.images)
    assert train.images.shape == (12, 4, 4, 1)


def test_folders_for_training_and_testing(tmp_path: Path) -> None:
    for part, value in (("train", 1), ("test", 2)):
        save(tmp_path / part / "a" / "x.png", mode="RGB", value=value)
        save(tmp_path / part / "b" / "y.png", value=value)
    train, test, classes = read_folder(tmp_path, None)
    assert classes == ("a", "b")
    assert train.images.shape == (2, 4, 4, 3)  # one has colour
    assert (train.images[:, 0, 0].tolist(), test.images[:, 0, 0].tolist()) == (
        [[1, 0, 0], [1, 1, 1]],
        [[2, 0, 0], [2, 2, 2]],
    )
    save(tmp_path / "test" / "c" / "z.png")
    with pytest.raises(UsageError, match="test/c has no folder like it in train"):
        read_folder(tmp_path, None)


def test_the_middle_is_kept(tmp_path: Path) -> None:
    """Of a wide image with a bright middle, the middle; at its size."""
    pixels = np.zeros((8, 24), np.uint8)
    pixels[:, 8:16] = 200
    for name in ("a/1", "a/2", "b/1", "b/2"):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
    train, *_ = read_folder(tmp_path, 8)
    assert (train.images == 200).all()
    assert read_folder(tmp_path, 16)[0].images.shape == (2, 16, 16, 1)
    assert read_folder(tmp_path, None)[0].images.shape == (2, 8, 24, 1)


def test_an_image_on_its_side_is_turned(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera held upright
    for name in ("a", "b"):
        for number in range(2):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.new("RGB", (6, 4)).save(tmp_path / name / f"{number}.jpg", exif=exif)
    assert read_folder(tmp_path, None)[0].images.shape == (2, 6, 4, 3)


def test_a_set_of_ones_own(tmp_path: Path) -> None:
    for number in range(20):
        save(tmp_path / "own" / "ab"[number % 2] / f"{number}.png", 16, 16, value=10 * number)
    data = load_images("own", tmp_path)
    assert (data.name, data.classes, data.shift, data.mirror) == ("own", ("a", "b"), 2, True)
    assert not load_images("own", tmp_path, mirror=False).mirror
    assert len(set(data.train.labels[:8].tolist())) == 2  # the first ones are not of one class
    few = load_images("own", tmp_path, train_images=3)
    assert torch.equal(few.train.images, data.train.images[:3])
    assert torch.equal(few.mean, data.mean)
    assert few.digest() != data.digest() == load_images(str(tmp_path / "own")).digest()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a/1.png": "L"}, "expected a folder for each class, two at least.*found a"),
        ({"1.png": "L"}, "expected a folder for each class, two at least.*found none"),
        ({"a/1.png": "L", "b/1.png": "L"}, "has one image; expected two"),
        ({"a/1.png": "L", "a/2.png": "L", "b/1.png": "L", "b/2.png": "broken"}, "2.png: not an image that can be read"),
        ({"a/1.png": "L", "a/2.png": "I;16", "b/1.png": "L", "b/2.png": "L"}, "2.png: expected eight bits"),
    ],
)
def test_directories_that_cannot_be_read(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, mode in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if mode == "broken":
            path.touch()
        else:
            Image.new(mode, (4, 4)).save(path)
    with pytest.raises(UsageError, match=message):
        read_folder(tmp_path, None)


def test_different_sizes_need_one(tmp_path: Path) -> None:
    for name in "ab":
        for number in range(2):
            save(tmp_path / name / f"{number}.png", 4 + number)
    with pytest.raises(UsageError, match="--image-size: the images have different sizes, such as 4x4 and 4x5"):
        read_folder(tmp_path, None)
    assert read_folder(tmp_path, 4)[0].images.shape == (2, 4, 4, 1)


def test_an_image_with_too_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        for number in range(2):
            save(tmp_path / name / f"{number}.png", 4)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4)
    with pytest.raises(UsageError, match=r"a/\d.png: not an image that can be read .*exceeds limit"):
        read_folder(tmp_path, None)
