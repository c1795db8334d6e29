"""Colours and files of figures. Needs matplotlib."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from bipolar._tools.files import replacing

#: From Okabe & Ito's palette, which colour-blind readers can tell apart.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"

#: An activation has the same colour in every figure; its bipolar version is dashed.
ACTIVATION_COLORS = {"relu": BLUE, "elu": VERMILION, "leaky_relu": GREEN, "selu": PURPLE}


def save(figure: Figure, path: Path) -> None:
    """Writes ``figure`` in the format of the suffix of ``path``; the same figure gives the same bytes.

    An existing file is replaced only once the new one is complete.
    """
    # Without a fixed salt, or with a date, every drawing of the same figure has other bytes.
    with replacing(path) as part, matplotlib.rc_context({"svg.hashsalt": path.name}):
        kind = path.suffix[1:]
        figure.savefig(part, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else None)


def save_all(figure: Figure, stem: Path) -> list[Path]:
    """Writes ``figure`` as ``stem.svg`` and ``stem.png`` and returns the paths."""
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in ("svg", "png")]
    for path in paths:
        save(figure, path)
    return paths
