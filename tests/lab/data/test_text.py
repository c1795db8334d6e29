"""Texts: encoded right, cut right, and refused with a sentence where they cannot be used."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bipolar.lab.data import files as data_files
from bipolar.lab.data import load_text
from bipolar.lab.data import text as texts
from bipolar.lab.data.files import RemoteFile
from bipolar.lab.errors import UsageError


class TestEncoding:
    @given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=300), st.sampled_from([3, 7, 1 << 22]))
    def test_it_is_what_a_loop_over_characters_gives(self, text: str, piece: int) -> None:
        before, texts.PIECE = texts.PIECE, piece
        try:
            corpus = texts._corpus("test", [np.frombuffer(text.encode(), np.uint8)] * 3)
        finally:
            texts.PIECE = before
        assert corpus.vocabulary == "".join(sorted(set(text)))
        expected = [corpus.vocabulary.index(symbol) for symbol in text]
        assert corpus.train.tolist() == corpus.test.tolist() == expected

    def test_one_byte_a_character(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        path.write_text("héllo wörld " * 100, encoding="utf-8")
        assert load_text(str(path), tmp_path).train.dtype == torch.uint8

    def test_many_symbols_take_more(self) -> None:
        text = "".join(chr(0x4E00 + i) for i in range(300))
        corpus = texts._corpus("test", [np.frombuffer(text.encode(), np.uint8)] * 3)
        assert corpus.train.tolist() == list(range(300))

    def test_the_start_of_the_training_part_keeps_the_vocabulary(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("ab" * 300 + "cd" * 200)
        whole = load_text("text", tmp_path)
        start = whole.with_start(0.1)
        assert start.train.tolist() == whole.train[:90].tolist()
        assert start.vocabulary == "abcd"
        assert start.valid is whole.valid
        assert start.digest() != whole.digest()

    def test_splits(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        path.write_bytes(b"abcdefghij" * 100)
        corpus = load_text(str(path), tmp_path)
        assert [len(corpus[split]) for split in ("train", "valid", "test")] == [900, 50, 50]
        corpus = load_text(str(path), tmp_path, (0.5, 0.25, 0.25))
        assert [len(corpus[split]) for split in ("train", "valid", "test")] == [500, 250, 250]

    def test_the_embedded_corpus(self, tmp_path: Path) -> None:
        corpus = load_text("python-docs", tmp_path)
        assert len(corpus.train) > 300_000
        assert {"a", " ", "\n"} <= set(corpus.vocabulary)

    def test_penn_treebank_comes_in_three_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        parts = {"train": b" the cat \n", "valid": b" the \n", "test": b" cat \n"}
        files = []
        for name, content in parts.items():
            path = tmp_path / "ptb" / f"ptb.{name}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            files.append(RemoteFile(f"ptb/ptb.{name}.txt", "https://example.org/a", digest))
        monkeypatch.setattr(texts, "PTB", files)
        corpus = load_text("ptb", tmp_path)
        decoded = {split: "".join(corpus.vocabulary[i] for i in corpus[split]) for split in parts}
        assert decoded == {name: content.decode() for name, content in parts.items()}


class TestBadData:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "the file is empty"),
            (b"abc\xff\xfe" * 20, "not UTF-8 near its byte 3"),
            (b"a" * 90 + b"aab" + b"a" * 7, "the symbol 'b' does not occur in the training part"),
            (b"a" * 90 + "aé".encode() + b"a" * 7, "the symbol 'é' does not occur in the training part"),
        ],
    )
    def test_a_file_that_cannot_be_used(self, tmp_path: Path, content: bytes, message: str) -> None:
        path = tmp_path / "a.txt"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=message):
            load_text(str(path), tmp_path)

    def test_names_and_splits(self, tmp_path: Path) -> None:
        with pytest.raises(
            UsageError, match="--data nothing: neither one of ptb, text8, text8-74M, python-docs nor a file"
        ):
            load_text("nothing", tmp_path)
        path = tmp_path / "a.txt"
        path.write_bytes(b"abc")
        with pytest.raises(UsageError, match=r"--split .* three positive fractions that add up to 1"):
            load_text(str(path), tmp_path, (0.9, 0.2, 0.1))

    def test_the_start_of_text8_is_cut_from_the_whole_or_has_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def file(path: str, content: bytes) -> RemoteFile:
            return RemoteFile(path, "https://example.org/text8.zip", f"sha256:{hashlib.sha256(content).hexdigest()}")

        whole = b"ab c" * 25
        monkeypatch.setattr(texts, "TEXT8", (file("text8/text8", whole),))
        monkeypatch.setattr(texts, "TEXT8_START", file("text8/text8-74M", whole[:60]))
        monkeypatch.setattr(texts, "TEXT8_START_SIZE", 60)
        (tmp_path / "text8").mkdir()
        (tmp_path / "text8/text8").write_bytes(whole)
        cut = load_text("text8-74M", tmp_path)
        assert [len(cut[split]) for split in ("train", "valid", "test")] == [54, 3, 3]
        (tmp_path / "text8/text8").unlink()
        (tmp_path / "text8/text8-74M").write_bytes(whole[:60])
        assert load_text("text8-74M", tmp_path).digest() == cut.digest()
        (tmp_path / "text8/text8-74M").write_bytes(whole[:59])
        with pytest.raises(UsageError, match="text8-74M: this is not"):
            load_text("text8-74M", tmp_path)

    def test_no_network_is_a_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise OSError("no route to host")

        monkeypatch.setattr(data_files, "_download", fail)
        with pytest.raises(
            UsageError,
            match=r"ptb.train.txt: not there, and downloading failed .* Put the missing files there yourself",
        ):
            load_text("ptb", tmp_path)
