"""Downloads from a real server: whole files, files out of archives, and damaged ones."""

import functools
import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bipolar.lab.data.files import RemoteFile, fetch
from bipolar.lab.errors import UsageError

CONTENT = {"one.txt": b"the first" * 1000, "two.bin": bytes(range(256)) * 50}


class Quiet(http.server.SimpleHTTPRequestHandler):
    requests: list[str]

    def log_message(self, format: str, *args: object) -> None:
        self.requests.append(self.path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    root = tmp_path_factory.mktemp("served")
    Quiet.requests = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield root, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def archive(kind: str, content: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as zipped:
            for name, data in content.items():
                zipped.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            link = tarfile.TarInfo("../../outside")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc"
            tar.addfile(link)
            for name, data in content.items():
                entry = tarfile.TarInfo(f"../folder/{name}")  # a path that must not be followed
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def files(url: str) -> list[RemoteFile]:
    return [
        RemoteFile(f"set/{name}", url if url.endswith((".zip", ".gz")) else f"{url}/{name}", f"sha256:{digest}")
        for name, digest in ((name, hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items())
    ]


@pytest.mark.parametrize("name", ["plain", "all.zip", "all.tar.gz"])
def test_what_is_missing_is_downloaded_once(served: tuple[Path, str], tmp_path: Path, name: str) -> None:
    root, url = served
    Quiet.requests.clear()
    if name == "plain":
        for file, data in CONTENT.items():
            (root / file).write_bytes(data)
    else:
        url = f"{url}/{name}"
        (root / name).write_bytes(archive(name.partition(".")[2], CONTENT))
    directory = tmp_path / "data"
    paths = fetch(files(url), directory)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["one.txt", "two.bin"]
    asked = len(Quiet.requests)
    assert asked == (2 if name == "plain" else 1)
    fetch(files(url), directory)
    assert len(Quiet.requests) == asked


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("damage", ["tampered", "cut off", "without it"])
def test_what_is_not_right_is_not_kept(served: tuple[Path, str], tmp_path: Path, kind: str, damage: str) -> None:
    root, url = served
    content = CONTENT | {"one.txt": b"something else"} if damage == "tampered" else dict(CONTENT)
    if damage == "without it":
        del content["one.txt"]
    data = archive(kind, content)
    (root / f"bad.{kind}").write_bytes(data[: len(data) // 2] if damage == "cut off" else data)
    message = {
        "tampered": "the download does not match its checksum; nothing of it was kept",
        "cut off": "not there, and downloading failed",
        "without it": "there is no .*one.txt|There is no item named 'one.txt'",
    }[damage]
    with pytest.raises(UsageError, match=message):
        fetch(files(f"{url}/bad.{kind}"), tmp_path)
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert path.read_bytes() == CONTENT[path.name]  # what came whole before the cut


def test_no_server_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"one.txt: not there, and downloading failed .* --data-dir"):
        fetch(files("http://127.0.0.1:9")[:1], tmp_path)


def test_a_tampered_file_is_noticed(tmp_path: Path) -> None:
    file = RemoteFile("set/a.txt", "https://example.org/a.txt", f"sha256:{hashlib.sha256(b'right').hexdigest()}")
    path = tmp_path / "set/a.txt"
    path.parent.mkdir()
    path.write_bytes(b"right")
    assert fetch([file], tmp_path) == [path]
    path.write_bytes(b"wrong")
    with pytest.raises(UsageError, match="remove it, and it will be downloaded again"):
        fetch([file], tmp_path)
