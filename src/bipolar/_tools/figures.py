"""What all figures share: colours, and files that are whole or not there. Needs matplotlib."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from bipolar._tools.files import replacing

#: A colour for each role, from Okabe & Ito's palette, which colour-blind readers can tell apart.
KEPT, FLIPPED = "#0072B2", "#D55E00"

#: The same activation has the same colour everywhere; its bipolar version has it too, in dashes.
ACTIVATION_COLORS = {"relu": "#0072B2", "elu": "#D55E00", "leaky_relu": "#009E73", "selu": "#CC79A7"}


def save(figure: Figure, path: Path) -> None:
    """Writes ``figure`` in the format that the suffix of ``path`` says, the same bytes for the same figure.

    A file that is there already is replaced only once the new one is complete.
    """
    # A fixed salt and no date: otherwise every drawing of the same figure is another file.
    with replacing(path) as part, matplotlib.rc_context({"svg.hashsalt": path.name}):
        kind = path.suffix[1:]
        figure.savefig(part, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else None)


def save_all(figure: Figure, stem: Path) -> list[Path]:
    """Writes ``figure`` as ``stem.svg`` and ``stem.png`` and returns the paths."""
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in ("svg", "png")]
    for path in paths:
        save(figure, path)
    return paths
