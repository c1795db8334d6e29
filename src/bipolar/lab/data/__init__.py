"""Data sets: found in a directory, downloaded with a checksum, or refused with a sentence that says what to do."""

from typing import TYPE_CHECKING

from bipolar._tools.on_demand import on_demand

if TYPE_CHECKING:
    from bipolar.lab.data.places import data_directory as data_directory
    from bipolar.lab.data.streams import Streams as Streams
    from bipolar.lab.data.text import Corpus as Corpus
    from bipolar.lab.data.text import load_text as load_text
else:
    __getattr__, __dir__ = on_demand(
        __name__, {"places": ("data_directory",), "streams": ("Streams",), "text": ("Corpus", "load_text")}
    )
