"""Texts as sequences of small integers: Penn Treebank, Text8, what ships with Python, or any file."""

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bipolar.lab.data.files import PTB, TEXT8, DataError, fetch

SPLITS = ("train", "valid", "test")
NAMES = ("ptb", "text8", "python-docs")

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

    def __getitem__(self, split: str) -> Tensor:
        if split not in SPLITS:
            raise KeyError(split)
        part: Tensor = getattr(self, split)
        return part


def load_text(data: str, directory: Path, split: tuple[float, float, float] = (0.9, 0.05, 0.05)) -> Corpus:
    """A corpus by name (``ptb``, ``text8``, ``python-docs``) or as the path of a UTF-8 text file, here or in
    ``directory``.

    Penn Treebank comes in three files; Text8 is cut 90/5/5; any other text by ``split``.
    """
    if data == "ptb":
        parts = [fetch(file, directory).read_bytes() for file in PTB]
        return _corpus(data, parts)
    if data == "text8":
        return _corpus(data, _cut(fetch(TEXT8[0], directory).read_bytes(), (0.9, 0.05, 0.05), data))
    if data == "python-docs":
        return _corpus(data, _cut(python_docs().encode(), (0.9, 0.05, 0.05), data))
    path = Path(data) if Path(data).is_file() else directory / data
    if not path.is_file():
        raise DataError(f"--data {data}: neither one of {', '.join(NAMES)} nor a file, here or in {directory}")
    if not (len(split) == 3 and all(part > 0 for part in split) and abs(sum(split) - 1) < 1e-6):
        raise DataError(f"--split {split}: expected three positive fractions that add up to 1, as in 0.9 0.05 0.05")
    return _corpus(path.name, _cut(path.read_bytes(), split, data))


def python_docs() -> str:
    """The topics of Python's own help: half a megabyte of English, which varies with the version."""
    from pydoc_data import topics

    return "\n\n".join(topics.topics[name] for name in sorted(topics.topics))


def _cut(text: bytes, split: tuple[float, float, float], name: str) -> list[bytes]:
    """Three parts by fractions of the bytes, moved to the next whole character."""
    if not text:
        raise DataError(f"--data {name}: the file is empty")
    borders = [0]
    for fraction in (split[0], split[0] + split[1]):
        border = round(fraction * len(text))
        while border < len(text) and text[border] & 0xC0 == 0x80:  # within a character
            border += 1
        borders.append(border)
    return [text[a:b] for a, b in zip(borders, [*borders[1:], len(text)], strict=True)]


def _corpus(name: str, parts: list[bytes]) -> Corpus:
    vocabulary = "".join(sorted(_symbols(parts[0], name)))
    if not vocabulary:
        raise DataError(f"--data {name}: its training part is empty")
    return Corpus(
        name,
        vocabulary,
        *(_encode(part, vocabulary, f"{name}, {split}") for part, split in zip(parts, SPLITS, strict=True)),
    )


def _pieces(text: bytes, name: str) -> Iterable[Any]:
    """The code points, piece by piece: bytes as they are where the text is ASCII."""
    if text.isascii():
        yield np.frombuffer(text, np.uint8)
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(text), PIECE):
        try:
            piece = decoder.decode(text[start : start + PIECE], final=start + PIECE >= len(text))
        except UnicodeDecodeError as error:
            raise DataError(f"--data {name}: not UTF-8 near byte {start + error.start}: {error.reason}") from None
        yield np.frombuffer(piece.encode("utf-32-le"), np.uint32)


def _symbols(text: bytes, name: str) -> set[str]:
    found: set[int] = set()
    for piece in _pieces(text, name):
        if piece.dtype == np.uint8:
            present = np.zeros(256, bool)
            present[piece] = True
            found |= set(np.flatnonzero(present).tolist())
        else:
            found |= set(np.unique(piece).tolist())
    return {chr(point) for point in found}


def _encode(text: bytes, vocabulary: str, name: str) -> Tensor:
    """Indices into the vocabulary, one byte each where it has at most 255 symbols: a lookup table, piece by piece."""
    points = [ord(symbol) for symbol in vocabulary]
    dtype = np.uint8 if len(points) < 256 else np.int32
    unknown = np.iinfo(dtype).max
    table = np.full(max(points) + 1, unknown, dtype)
    table[points] = np.arange(len(points), dtype=dtype)
    encoded = []
    for piece in _pieces(text, name):
        if piece.size and piece.max() >= len(table):
            raise _unknown_symbol(chr(int(piece[piece >= len(table)][0])), name)
        indices = table[piece] if piece.dtype != np.uint8 else np.take(table, piece)
        if (indices == unknown).any():
            raise _unknown_symbol(chr(int(piece[np.argmax(indices == unknown)])), name)
        encoded.append(indices)
    return torch.from_numpy(np.concatenate(encoded) if len(encoded) != 1 else encoded[0])


def _unknown_symbol(symbol: str, name: str) -> DataError:
    return DataError(f"{name}: the symbol {symbol!r} does not occur in the training part, so no model can know it")


def encode(text: str, vocabulary: str) -> Tensor:
    """A text as indices into a vocabulary, as int64."""
    index = {symbol: i for i, symbol in enumerate(vocabulary)}
    for symbol in text:
        if symbol not in index:
            raise DataError(f"the symbol {symbol!r} is not in the vocabulary of the model: {vocabulary!r}")
    return torch.tensor([index[symbol] for symbol in text], dtype=torch.int64)
