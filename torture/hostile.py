"""Files of somebody who means harm: nothing in them is executed, nothing outside is written, the page escapes them."""

import contextlib
import io
import json
import pickle
import shutil
import struct
import tarfile
import traceback
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import torch

import bipolar
from bipolar._tools.files import digest
from bipolar.lab.cli import main
from bipolar.lab.data.files import RemoteFile, fetch
from bipolar.lab.errors import UsageError
from tests.helpers.harm import Harmful
from tests.helpers.paths import ROOT
from torture.watch import Refusal, asked

SCRIPT = "<script>alert('torture')</script>"
STRINGS = (
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "../../../etc/passwd",
    "/etc/passwd",
    "",
    "\x00",
    "a" * 10**5,
)
NUMBERS = (0, -1, 10**12, 10**40, 1e308, -0.5, 1e400, float("nan"))
VALUES: tuple[Any, ...] = (*STRINGS, *NUMBERS, None, True, [], {}, [[[]]], {"a": SCRIPT}, ["alternate"])
#: A run, and records.
RUN, RECORDS = ROOT / "tests" / "compatibility" / "run", ROOT / "results" / "small"
#: The directory that nothing may write outside of.
INSIDE = "inside"


def a_hostile_file(random: Random, directory: Path) -> str:
    """One of the kinds of files that people get from others."""
    kind = random.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
    inside = directory / INSIDE
    inside.mkdir()
    with contextlib.chdir(inside) if hasattr(contextlib, "chdir") else contextlib.nullcontext():
        outcome = KINDS[kind][1](random, inside)
    left = sorted(path.name for path in directory.iterdir())
    assert left == [INSIDE], f"{kind}: wrote outside of its directory: {left}"
    return f"{kind}: {outcome}"


def canary(inside: Path) -> Path:
    return inside.parent / "executed"


def _command(*arguments: str) -> str:
    """The outcome of a ``bipolar`` command: it ends well, or with a message; a traceback is a failure."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main(arguments)
    except SystemExit as end:
        if isinstance(end.code, str):
            return "refused"
        return "ended" if not end.code else f"exit code {end.code}"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}, {where.name}"
        raise AssertionError(
            f"bipolar {arguments[0]}: {type(error).__name__} in {place}: {str(error)[:150]}"
        ) from error
    return "ended"


# Models


def model(random: Random, inside: Path) -> str:
    """A directory for ``bipolar.load``, with one of its two files, or both, tampered with."""
    path = inside / "model"
    bipolar.models.CharRNN("abc ", hidden_size=4, num_layers=2).save_pretrained(path)
    if random.random() < 0.6:
        _spoil_weights(random, path / "model.safetensors", inside)
    else:
        _spoil_json(random, path / "config.json")
    answer = asked(lambda: bipolar.load(path), (), draws=False)
    return str(answer) if isinstance(answer, Refusal) else "loaded"


def _spoil_weights(random: Random, path: Path, inside: Path) -> None:
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    name = random.choice([key for key in header if key != "__metadata__"])
    way = random.randrange(9)
    if way == 0:
        path.write_bytes(pickle.dumps(Harmful(canary(inside))))
    elif way == 1:
        torch.save(Harmful(canary(inside)), path)
    elif way == 2:
        path.write_bytes(content[: random.randrange(len(content))])
    elif way == 3:
        path.write_bytes(struct.pack("<Q", random.choice((2**63, 2**40, length + 1000, 0))) + content[8:])
    elif way == 4:
        flipped = bytearray(content)
        flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
        path.write_bytes(bytes(flipped))
    elif way == 5:
        header[name]["shape"] = random.choice(([2**40], [2**62, 4], [-1], [0], "4", [4, 4, 4]))
        _write_safetensors(path, header, content[8 + length :])
    elif way == 6:
        header[name]["data_offsets"] = random.choice(([0, 2**50], [-1, 4], [0, 0], [8, 4]))
        _write_safetensors(path, header, content[8 + length :])
    elif way == 7:
        header[random.choice(STRINGS[:5])] = header.pop(name)
        _write_safetensors(path, header, content[8 + length :])
    else:
        path.unlink()
        path.symlink_to("/dev/zero" if random.random() < 0.5 else "/etc/hostname")


def _write_safetensors(path: Path, header: dict[str, Any], rest: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + rest)


def _spoil_json(random: Random, path: Path) -> None:
    """Replaces a value somewhere in a JSON file, or all of it."""
    text = path.read_text(encoding="utf-8")
    way = random.random()
    if way < 0.7:
        value = json.loads(text)
        places = list(_places(value))
        holder, key = random.choice(places)
        holder[key] = random.choice(VALUES)
        if random.random() < 0.1 and isinstance(holder, dict):
            holder[random.choice(STRINGS[:5])] = holder.pop(key)
        path.write_text(json.dumps(value), encoding="utf-8")
    elif way < 0.8:
        path.write_text("[" * 10**5 + "]" * 10**5, encoding="utf-8")
    elif way < 0.9:
        path.write_text(text[: random.randrange(len(text))], encoding="utf-8")
    else:
        path.write_bytes(
            random.choice((b"", b"\xff\xfe\x00", b"<html>" + SCRIPT.encode(), b"null", b"[]", b"1e999", b'"a"'))
        )


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Everything within a value that can be replaced, as a holder and a key."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(entries):
        yield value, key
        yield from _places(part)


# Runs


def run(random: Random, inside: Path) -> str:
    """The directory of a run of another's making, given to the commands that read one."""
    path = inside / "run"
    shutil.copytree(RUN, path)
    (inside / "fox.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40, encoding="utf-8")
    way = random.random()
    if way < 0.5:
        for checkpoint in (path / "checkpoints").glob("*.pt"):
            _spoil_checkpoint(random, checkpoint, inside)
    else:
        _spoil_json(random, path / random.choice(("config.json", "config.json", "result.json")))
    if random.random() < 0.3:
        (path / "result.json").unlink(missing_ok=True)
    command = random.choice(
        (
            ("eval", "run"),
            ("sample", "run", "--length", "5"),
            ("train", "text", "--resume", "run"),
            ("train", "text", "--resume", "run", "--max-steps", "70"),
            ("export", "run", "exported"),
        )
    )
    with _few_steps():
        outcome = _command(*command)
    return f"{command[0]}, {outcome}"


@contextlib.contextmanager
def _few_steps() -> Iterator[None]:
    """Ends a run that does go on after a step: what it learns does not matter here."""
    from bipolar.lab.training.loop import _Loop

    def stop(loop: _Loop, *_: object) -> dict[str, Any]:
        return {"status": "stopped", "step": loop.step}

    with mock.patch.object(_Loop, "run", stop):
        yield


def _spoil_checkpoint(random: Random, path: Path, inside: Path) -> None:
    """Replaces a checkpoint, with a digest that fits."""
    state = torch.load(path, weights_only=True)
    way = random.randrange(7)
    if way == 0:
        torch.save(Harmful(canary(inside)), path)
    elif way == 1:
        path.write_bytes(pickle.dumps(Harmful(canary(inside))))
    elif way == 2:
        torch.save(random.choice(([], 3, {}, {"model": 1}, torch.ones(3))), path)
    elif way == 3:
        del state[random.choice(list(state))]
        torch.save(state, path)
    elif way == 4:
        state["model"] = {name: torch.ones(3) for name in state["model"]}
        torch.save(state, path)
    elif way == 5:
        holder, key = random.choice([place for place in _places(state) if not isinstance(place[1], int)])
        holder[key] = random.choice(VALUES)
        torch.save(state, path)
    else:
        content = bytearray(path.read_bytes())
        content[random.randrange(len(content))] ^= 255
        path.write_bytes(bytes(content))
    path.with_suffix(".sha256").write_text(digest(path) + "\n")


def record(random: Random, inside: Path) -> str:
    """A record of another's making on the page."""
    name = random.choice(sorted(path.stem for path in RECORDS.glob("*.json")))
    path = inside / "records" / f"{name}.json"
    path.parent.mkdir()
    shutil.copyfile(RECORDS / path.name, path)
    for _ in range(random.randint(1, 3)):
        _spoil_json(random, path)
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(json.loads(path.read_text(encoding="utf-8")), dict):
                continue
        break
    outcome = _command("report", "records")
    for made in path.parent.glob("report.*"):
        text = made.read_text(encoding="utf-8")
        if made.suffix in (".html", ".md"):
            assert "<script>alert" not in text, f"{made.name}: a script of a record is not escaped"
            assert "<img src=x" not in text, f"{made.name}: a tag of a record is not escaped"
    return outcome


# Data


def archive(random: Random, inside: Path) -> str:
    """A download that is another archive than it should be."""
    url = random.choice(("https://nowhere.invalid/data.tar.gz", "https://nowhere.invalid/data.zip"))
    saved = inside / "download"
    absolute = str(inside.parent / "outside" / "wanted.bin")
    names = ("wanted.bin", absolute, "../wanted.bin", "../../outside/wanted.bin")
    name = random.choice(names)
    if random.random() < 0.1:
        saved.write_bytes(random.randbytes(200))
    elif url.endswith(".zip"):
        with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr(name, b"\0" * random.choice((10, 10**7)))
    else:
        with tarfile.open(saved, "w:gz") as tar:
            entry = tarfile.TarInfo(name)
            entry.type = random.choice(
                (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)
            )
            entry.linkname = random.choice(("/etc/passwd", "../../outside", "wanted.bin"))
            content = b"harm" if entry.type == tarfile.REGTYPE else b""
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    wanted = RemoteFile("set/wanted.bin", url, "sha256:" + "0" * 64)
    with mock.patch("pooch.retrieve", return_value=str(saved)):
        try:
            fetch([wanted], inside / "data")
        except UsageError:
            left = [path for path in (inside / "data").rglob("*") if path.is_file()]
            assert not left, f"kept {left}"
            return "refused"
    raise AssertionError("a download without its checksum was taken")


def images(random: Random, inside: Path) -> str:
    """A folder of images, one of which is none, or too large, or broken."""
    from PIL import Image

    for label in ("a", "b"):
        folder = inside / "pictures" / label
        folder.mkdir(parents=True)
        for i in range(2):
            Image.new("RGB", (8, 8), (i, 0, 0)).save(folder / f"{i}.png")
    spoilt = inside / "pictures" / "a" / "0.png"
    content = spoilt.read_bytes()
    way = random.randrange(6)
    if way == 0:
        spoilt.write_bytes(_png_of(random.choice((2, 20_000, 60_000, 2**31 - 1))))
    elif way == 1:
        flipped = bytearray(content)
        for _ in range(random.randint(1, 4)):
            flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
        spoilt.write_bytes(bytes(flipped))
    elif way == 2:
        spoilt.write_bytes(content[: random.randrange(len(content))])
    elif way == 3:
        spoilt.write_bytes(
            random.choice((b"", random.randbytes(100), b"GIF89a" + random.randbytes(50), SCRIPT.encode()))
        )
    elif way == 4:
        spoilt.unlink()
        spoilt.symlink_to(random.choice(("/etc/passwd", "0.png", "nowhere")))
    else:
        spoilt.write_bytes(pickle.dumps(Harmful(canary(inside))))
    with _few_steps():
        return _command("train", "images", "--data", "pictures", "--max-steps", "1", "--out", "run")


def _png_of(side: int) -> bytes:
    """The head of a PNG that claims to be so large, and has next to no data."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


def text(random: Random, inside: Path) -> str:
    """A text that is none."""
    path = inside / "corpus.txt"
    content: Sequence[bytes] = (
        b"",
        b"a",
        b"\xff\xfe" * 1000,
        b"\0" * 5000,
        SCRIPT.encode() * 300,
        random.randbytes(4000),
    )
    path.write_bytes(random.choice(content))
    if random.random() < 0.1:
        path.unlink()
        path.mkdir()
    with _few_steps():
        return _command(
            *("train", "text", "--data", "corpus.txt", "--max-steps", "1", "--out", "run"),
            *("--model.num-layers", "2", "--model.hidden-size", "4", "--batch-size", "2", "--window", "5"),
        )


#: The kinds of files, each with its weight in the draw.
KINDS: dict[str, tuple[float, Callable[[Random, Path], str]]] = {
    "model": (5, model),
    "run": (5, run),
    "record": (1, record),
    "archive": (2, archive),
    "images": (2, images),
    "text": (1, text),
}
