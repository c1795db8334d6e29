"""What all figures share: colours, and files that are whole or not there."""

from collections.abc import Iterable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

#: A colour for each role, from Okabe & Ito's palette, which colour-blind readers can tell apart.
KEPT, FLIPPED = "#0072B2", "#D55E00"


def save(figure: Figure, stem: Path, formats: Iterable[str] = ("svg", "png")) -> list[Path]:
    """Writes ``figure`` as ``stem.svg`` and ``stem.png``, the same bytes for the same figure, and returns the paths.

    A file is replaced only once the new one is complete.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in formats]
    # A fixed salt and no date: otherwise every drawing of the same figure is another file.
    with matplotlib.rc_context({"svg.hashsalt": stem.name}):
        for path in paths:
            part = path.with_name(path.name + ".part")
            try:
                metadata = {"Date": None} if path.suffix == ".svg" else None
                figure.savefig(part, format=path.suffix[1:], dpi=200, metadata=metadata)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
    return paths
