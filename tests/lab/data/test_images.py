"""Images: the binary format, the statistics, and augmentation against a slow loop."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from bipolar.lab.data import images as image_data
from bipolar.lab.data.files import RemoteFile
from bipolar.lab.data.images import ImageSet, load_images
from bipolar.lab.data.pictures import Pictures
from bipolar.lab.errors import UsageError


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    return load_images("digits", tmp_path_factory.mktemp("nothing"))


def test_the_embedded_set(digits: ImageSet) -> None:
    assert digits.train.images.shape == (1438, 8, 8, 1)
    assert len(digits.test) == 359
    assert digits.channels == 1
    assert digits.train.images.dtype == torch.uint8
    assert digits.train.images.max() == 240
    assert set(digits.train.labels.tolist()) == set(digits.test.labels.tolist()) == set(range(10))
    assert not digits.mirror
    assert digits.shift == 1
    theirs = load_digits()
    for ours, rows in ((digits.train, torch.arange(1797) % 5 < 4), (digits.test, torch.arange(1797) % 5 == 4)):
        assert torch.equal(ours.images[..., 0].double(), torch.from_numpy(theirs.images)[rows] * 15)
        assert torch.equal(ours.labels, torch.from_numpy(theirs.target)[rows].long())
    whole = digits.train.images.double()
    assert digits.mean.item() == pytest.approx(whole.mean().item(), rel=1e-6)
    assert digits.std.item() == pytest.approx(whole.std(correction=0).item(), rel=1e-6)


def test_cifar10_from_its_binary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    planes = rng.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    labels = rng.integers(0, 10, (12, 1), dtype=np.uint8)
    rows = np.concatenate([labels, planes.reshape(12, -1)], 1)
    files = []
    for i in range(6):
        content = rows[2 * i : 2 * i + 2].tobytes()
        path = tmp_path / f"cifar-10-batches-bin/{i}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        files.append(RemoteFile(f"cifar-10-batches-bin/{i}.bin", "https://example.org/a", f"sha256:{digest}"))
    monkeypatch.setattr(image_data, "CIFAR10", tuple(files))
    found = load_images("cifar10", tmp_path)
    assert (len(found.train), len(found.test)) == (10, 2)
    assert torch.equal(found.train.images, torch.from_numpy(planes[:10]).permute(0, 2, 3, 1))
    assert found.test.labels.tolist() == labels[10:, 0].tolist()
    assert found.mirror
    assert found.shift == 4
    expected = planes[:10].astype(np.float64)
    np.testing.assert_allclose(found.mean, expected.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(found.std, expected.std((0, 2, 3)), rtol=1e-6)
    normalised = found.normalised(found.train.images)
    assert normalised.shape == (10, 3, 32, 32)
    assert normalised.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(normalised.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(normalised.std((0, 2, 3), correction=0), torch.ones(3))
    few = load_images("cifar10", tmp_path, train_images=3)
    assert torch.equal(few.train.images, found.train.images[:3])
    assert torch.equal(few.mean, found.mean)
    assert load_images("cifar10", tmp_path, shift=2).shift == 2


def padded(image: Tensor, by: int) -> Tensor:
    return torch.from_numpy(np.pad(image.numpy(), ((by, by), (by, by), (0, 0)), mode="reflect"))


def test_every_varied_image_is_a_crop_of_the_padded_one() -> None:
    """And all crops, mirrored or not, come up: of 18 with 600 draws each is missed with probability below 1e-13."""
    picture = torch.arange(5 * 6 * 3, dtype=torch.uint8).view(1, 5, 6, 3)
    data = Pictures(picture, torch.zeros(1, dtype=torch.int64))
    zero, one = torch.zeros(3), torch.ones(3)
    images = ImageSet("x", data, data, zero, one, ("a",), shift=1, mirror=True)
    crops = []
    for top in range(3):
        for left in range(3):
            crop = padded(picture[0], 1)[top : top + 5, left : left + 6]
            crops += [crop, crop.flip(1)]
    chosen = torch.zeros(600, dtype=torch.int64)
    found = images.varied(data, chosen, torch.Generator().manual_seed(0))
    counts = [int((found == crop).flatten(1).all(1).sum()) for crop in crops]
    assert sum(counts) == 600
    assert min(counts) > 0


def test_images_keep_their_places_and_the_generator_decides(digits: ImageSet) -> None:
    chosen = torch.tensor([5, 3, 3, 800])
    still = ImageSet("x", digits.train, digits.test, digits.mean, digits.std, digits.classes, shift=0, mirror=False)
    assert torch.equal(still.varied(digits.train, chosen, torch.Generator()), digits.train.images[chosen])
    one, two, other = (digits.varied(digits.train, chosen, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert one.dtype == torch.uint8
    part = digits.varied(digits.train, chosen, torch.Generator().manual_seed(1), slice(1, 3))
    assert torch.equal(part, one[1:3])


def test_bad_names_and_counts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--data mnist: neither one of cifar10, digits nor a directory"):
        load_images("mnist", tmp_path)
    with pytest.raises(UsageError, match="--train-images 2000: expected 1 to 1438"):
        load_images("digits", tmp_path, train_images=2000)
    with pytest.raises(UsageError, match="--shift 8: expected 0 to 7, less than the side of an image"):
        load_images("digits", tmp_path, shift=8)
    with pytest.raises(UsageError, match="--image-size 32: the images of digits have a size of their own"):
        load_images("digits", tmp_path, image_size=32)
