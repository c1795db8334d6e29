"""Scales of a reproduction, from minutes on any machine to the paper's own."""

from typing import Literal, TypeAlias, get_args

Scale: TypeAlias = Literal["quick", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)

#: A description of each for readers of the report.
ABOUT_SCALES: dict[Scale, str] = {
    "quick": (
        "data that comes with the packages, networks and runs so small that all of it takes minutes, and for images a "
        "fixed learning rate in place of the search"
    ),
    "small": (
        "real data, but small networks and short runs; in brackets the paper's. Text: about 0.3 million parameters "
        "(4.75 and 16.2 million) and at most two epochs (200). Table 2, and the studies that say so, have the paper's "
        "size and some epochs by the fast recipe; the study of dropout rates has 40 epochs of a two-hundredth of the "
        "text. Images: a widening factor of 1 (10) and a few epochs (200) of CIFAR-10 or a part of it"
    ),
    "paper": "as published",
}
