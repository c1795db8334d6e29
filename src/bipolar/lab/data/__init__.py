"""Data sets: found in a directory, downloaded with a checksum, or refused with a sentence that says what to do."""

from bipolar.lab.data.files import data_directory
from bipolar.lab.data.streams import Streams
from bipolar.lab.data.text import Corpus, load_text

__all__ = ["Corpus", "Streams", "data_directory", "load_text"]
