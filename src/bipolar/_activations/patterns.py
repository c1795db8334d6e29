"""Patterns of signs: the units of a layer that are flipped.

A pattern is a diagonal matrix S of signs, one for each channel: +1 for a unit that keeps the activation f(x), -1 for
a flipped one, which has -f(-x) instead.

- ``"alternate"``: +1, -1, +1, -1, ... — every second unit, as in the text of Eidnes & Nøkland (2018).
- ``"halves"``: the first half -1, the second half +1, as in the authors' released code.

Either way floor(C / 2) of C channels are flipped: with an odd count one more unit is kept than flipped, and a single
channel is never flipped.
"""

from typing import get_args

import torch
from torch import Tensor

from bipolar._tools.choices import Pattern as Pattern

PATTERNS: tuple[Pattern, ...] = get_args(Pattern)


def check_pattern(pattern: str) -> None:
    """Raises a ``ValueError`` that names the known patterns unless ``pattern`` is one of them."""
    if pattern not in PATTERNS:
        raise ValueError(f"pattern: expected one of {', '.join(map(repr, PATTERNS))}, got {pattern!r}")


def flipped(channels: int, pattern: Pattern = "alternate") -> slice:
    """The flipped channels, as a slice.

    Examples::

        >>> from bipolar._activations.patterns import flipped
        >>> list(range(5))[flipped(5)], list(range(5))[flipped(5, "halves")]
        ([1, 3], [0, 1])
    """
    check_pattern(pattern)
    return slice(1, None, 2) if pattern == "alternate" else slice(0, channels // 2)


def kept(channels: int, pattern: Pattern = "alternate") -> slice:
    """The channels that are not flipped, as a slice.

    Examples::

        >>> from bipolar._activations.patterns import kept
        >>> list(range(5))[kept(5)], list(range(5))[kept(5, "halves")]
        ([0, 2, 4], [2, 3, 4])
    """
    check_pattern(pattern)
    return slice(0, None, 2) if pattern == "alternate" else slice(channels // 2, None)


def signs(
    channels: int,
    pattern: Pattern = "alternate",
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """The diagonal of S: a vector of +1 (kept) and -1 (flipped).

    Examples::

        >>> from bipolar._activations.patterns import signs
        >>> signs(5)
        tensor([ 1., -1.,  1., -1.,  1.])
        >>> signs(5, "halves")
        tensor([-1., -1.,  1.,  1.,  1.])
    """
    sign = torch.ones(channels, dtype=dtype, device=device)
    sign[flipped(channels, pattern)].fill_(-1)  # not by arithmetic on an index: torch.compile would not vectorise that
    return sign
