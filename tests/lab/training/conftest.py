"""Fixtures that several tests of training share."""

from pathlib import Path

import pytest

from bipolar.lab.training.text import train_text
from tests.helpers.text_runs import TEXT, text_config


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "fox.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="session")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was left alone."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    result = train_text(text_config(corpus, out, max_steps=450))
    assert result["status"] == "finished"
    return out
