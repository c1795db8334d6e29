"""Patterns of flipped channels."""

import pytest
import torch

from bipolar._activations.patterns import PATTERNS, Pattern, flipped, kept, signs
from tests.helpers.definition import is_flipped


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("channels", range(8))
def test_kept_and_flipped_channels_share_out_all_channels(pattern: Pattern, channels: int) -> None:
    index = list(range(channels))
    expected = [i for i in index if is_flipped(i, channels, pattern)]
    assert index[flipped(channels, pattern)] == expected
    assert index[kept(channels, pattern)] == [i for i in index if i not in expected]
    assert len(expected) == channels // 2
    assert signs(channels, pattern).tolist() == [-1.0 if i in expected else 1.0 for i in index]


def test_signs_have_the_dtype_and_device_asked_for() -> None:
    sign = signs(3, dtype=torch.bfloat16, device="meta")
    assert (sign.dtype, sign.device.type) == (torch.bfloat16, "meta")


@pytest.mark.parametrize("function", [flipped, kept, signs])
def test_an_unknown_pattern_is_refused(function: object) -> None:
    with pytest.raises(ValueError, match=r"pattern: expected one of 'alternate', 'halves', got 'odd'"):
        function(4, "odd")
