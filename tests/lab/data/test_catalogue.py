"""The table of all data sets."""

from pathlib import Path

from bipolar.lab.data import catalogue


def test_it_names_every_set_and_the_state_of_its_files(tmp_path: Path) -> None:
    path = tmp_path / "text8/text8"
    path.parent.mkdir()
    path.write_bytes(b"not text8")
    table = catalogue.table(tmp_path)
    assert "not there; comes from https://" in table
    assert "WRONG: remove it" in table
    assert "python-docs" in table
    assert "cifar-10-batches-bin/test_batch.bin" in table
    assert "10 classes" in table
