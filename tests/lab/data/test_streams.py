"""Streams: they go on where they were, from a start that is drawn."""

import pytest
import torch

from bipolar.lab.data import Streams
from bipolar.lab.errors import UsageError


def test_streams_go_on_where_they_were() -> None:
    text = torch.arange(103, dtype=torch.uint8)
    streams = Streams(text, batch=4, window=5)
    assert streams.windows == 5
    seen = torch.cat([streams.at(i)[0] for i in range(5)])
    targets = torch.cat([streams.at(i)[1] for i in range(5)])
    assert seen.shape == (25, 4)
    assert seen.dtype == torch.int64
    assert torch.equal(seen.mT.flatten(), torch.arange(100))
    assert torch.equal(targets, seen + 1)


def test_the_crop_is_drawn() -> None:
    streams = Streams(torch.arange(103, dtype=torch.uint8), batch=4, window=5)
    offsets = {streams.offset(torch.Generator().manual_seed(seed)) for seed in range(50)}
    assert offsets == {0, 1, 2}
    x, y = streams.at(4, offset=2, part=slice(1, 3))
    assert x.shape == (5, 2)
    assert y[-1].tolist() == [52, 77]


def test_too_short_for_a_batch() -> None:
    with pytest.raises(UsageError, match="10 characters are less than one batch of 4 x 5"):
        Streams(torch.zeros(10, dtype=torch.uint8), 4, 5)
