"""Texts as sequences of small integers: Penn Treebank, Text8, Python's documentation, or any file."""

import codecs
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from bipolar.lab.data.files import PTB, TEXT8, TEXT8_START, TEXT8_START_SIZE, fetch
from bipolar.lab.data.places import DEFAULT_SPLIT, SPLITS, TEXTS, data_directory, own_data
from bipolar.lab.errors import UsageError

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

#: Text is decoded in pieces of this many bytes, so that only one piece takes more than a byte a character.
PIECE = 1 << 22


@dataclass(frozen=True)
class Corpus:
    """A text cut in three, each part as the indices of its characters in the vocabulary."""

    name: str
    vocabulary: str
    train: Tensor
    valid: Tensor
    test: Tensor

    def digest(self) -> str:
        """The digest of the whole text, which tells whether it is still the same."""
        state = hashlib.sha256(self.vocabulary.encode())
        for split in SPLITS:
            state.update(self[split].numpy().data)
        return state.hexdigest()

    def with_start(self, share: float) -> "Corpus":
        """The corpus with the start of its training part alone, in the vocabulary of the whole."""
        return replace(self, train=self.train[: round(share * len(self.train))])

    def __getitem__(self, split: str) -> Tensor:
        if split not in SPLITS:
            raise KeyError(split)
        part: Tensor = getattr(self, split)
        return part


def load_text(data: str, data_dir: Path | None = None, split: tuple[float, float, float] = DEFAULT_SPLIT) -> Corpus:
    """A corpus by name, or as the path of a UTF-8 text file, here or in the data directory.

    The names are ``ptb``, ``text8``, ``text8-74M``, which is the first 74 million characters of it, and
    ``python-docs``. Penn Treebank comes in three files; the others are cut 90/5/5, a file by ``split``.
    """
    directory = data_directory(data_dir)
    if data in TEXTS and split != DEFAULT_SPLIT:
        raise UsageError(f"--split {' '.join(map(str, split))}: {data} has a split of its own; leave it out")
    if data == "ptb":
        return _corpus(data, [_bytes_of(path) for path in fetch(PTB, directory)])
    if data == "text8":
        return _corpus(data, _cut(_bytes_of(*fetch(TEXT8, directory)), DEFAULT_SPLIT, data))
    if data == "text8-74M":
        return _corpus(data, _cut(_start_of_text8(directory), DEFAULT_SPLIT, data))
    if data == "python-docs":
        return _corpus(data, _cut(np.frombuffer(python_docs().encode(), np.uint8), DEFAULT_SPLIT, data))
    path = own_data(data, data_dir, TEXTS, "file")
    if not (len(split) == 3 and all(part > 0 for part in split) and abs(sum(split) - 1) < 1e-6):
        raise UsageError(f"--split {split}: expected three positive fractions that add up to 1, as in 0.9 0.05 0.05")
    return _corpus(str(path), _cut(_bytes_of(path), split, data))


def _start_of_text8(directory: Path) -> Bytes:
    if (directory / TEXT8_START.path).exists():
        return _bytes_of(*fetch([TEXT8_START], directory))
    return _bytes_of(*fetch(TEXT8, directory))[:TEXT8_START_SIZE]


def python_docs() -> str:
    """The topics of Python's own help: half a megabyte of English, which varies with the version."""
    from pydoc_data import topics

    return "\n\n".join(topics.topics[name] for name in sorted(topics.topics))


def _bytes_of(path: Path) -> Bytes:
    """A file mapped into memory, so that its size does not matter."""
    return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)


def _cut(text: Bytes, split: tuple[float, float, float], name: str) -> list[Bytes]:
    """Three parts by fractions of the bytes, each border moved to the next whole character."""
    if not len(text):
        raise UsageError(f"--data {name}: the file is empty")
    borders = [0]
    for fraction in (split[0], split[0] + split[1]):
        border = round(fraction * len(text))
        while border < len(text) and text[border] & 0xC0 == 0x80:  # within a character
            border += 1
        borders.append(border)
    return [text[a:b] for a, b in zip(borders, [*borders[1:], len(text)], strict=True)]


def _corpus(name: str, parts: list[Bytes]) -> Corpus:
    vocabulary = "".join(sorted(_symbols(parts[0], name)))
    if not vocabulary:
        raise UsageError(f"--data {name}: its training part is empty")
    return Corpus(
        name,
        vocabulary,
        *(_encode(part, vocabulary, f"{name}, {split}") for part, split in zip(parts, SPLITS, strict=True)),
    )


def _pieces(text: Bytes, name: str) -> Iterable[Any]:
    """The code points, piece by piece; the bytes themselves if the text is ASCII."""
    starts = range(0, len(text), PIECE)
    if all(text[start : start + PIECE].max() < 128 for start in starts):
        yield from (text[start : start + PIECE] for start in starts)
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in starts:
        try:
            piece = decoder.decode(text[start : start + PIECE].tobytes(), final=start + PIECE >= len(text))
        except UnicodeDecodeError as error:
            raise UsageError(f"--data {name}: not UTF-8 near its byte {start + error.start}: {error.reason}") from None
        yield np.frombuffer(piece.encode("utf-32-le"), np.uint32)


def _symbols(text: Bytes, name: str) -> set[str]:
    found: set[int] = set()
    for piece in _pieces(text, name):
        if piece.dtype == np.uint8:
            present = np.zeros(256, bool)
            present[piece] = True
            found |= set(np.flatnonzero(present).tolist())
        else:
            found |= set(np.flatnonzero(np.bincount(piece)).tolist())
    return {chr(point) for point in found}


def _encode(text: Bytes, vocabulary: str, name: str) -> Tensor:
    """Indices into the vocabulary, one byte each where it has at most 255 symbols: a lookup table, piece by piece."""
    points = [ord(symbol) for symbol in vocabulary]
    dtype = np.uint8 if len(points) < 256 else np.int32
    unknown = np.iinfo(dtype).max
    table = np.full(max(points) + 1, unknown, dtype)
    table[points] = np.arange(len(points), dtype=dtype)
    encoded, count = np.empty(len(text), dtype), 0
    for piece in _pieces(text, name):
        if piece.size and piece.max() >= len(table):
            raise _unknown_symbol(chr(int(piece[piece >= len(table)][0])), name)
        indices = table[piece] if piece.dtype != np.uint8 else np.take(table, piece)
        if (indices == unknown).any():
            raise _unknown_symbol(chr(int(piece[np.argmax(indices == unknown)])), name)
        encoded[count : count + len(indices)] = indices
        count += len(indices)
    return torch.from_numpy(encoded[:count])


def _unknown_symbol(symbol: str, name: str) -> UsageError:
    return UsageError(f"{name}: the symbol {symbol!r} does not occur in the training part, so no model can know it")
