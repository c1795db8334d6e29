"""OrientedResponseNet beyond its WideResNet: whole features, encodings, arguments."""

from typing import Any

import pytest
import torch
from torch import nn

import bipolar
from bipolar.models import OrientedResponseNet
from tests.helpers.networks import SMALL, small_images


@pytest.mark.parametrize("pattern", ["alternate", "halves"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_whole_oriented_features_are_flipped(pattern: Any, channels_last: bool) -> None:
    model = OrientedResponseNet(**SMALL, activation="belu", pattern=pattern, orientations=4)
    x = torch.randn(2, 16, 3, 5)  # four features of four orientations
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    flip = bipolar._activations.patterns.signs(4, pattern).repeat_interleave(4).view(-1, 1, 1)
    y = model.activation(x)
    torch.testing.assert_close(y, flip * nn.functional.elu(flip * x))
    assert y.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


@pytest.mark.parametrize("encoding", ["align", "pool"])
def test_an_encoding_does_not_turn_with_the_image(encoding: Any) -> None:
    """Exact for turns by 90 degrees where the grid allows it: odd sides, so that strides meet the same pixels."""
    torch.manual_seed(0)
    model = OrientedResponseNet(**SMALL, activation="elu", encoding=encoding).double().eval()
    bipolar.lsuv_(model, small_images(8, 9, torch.float64))
    x = small_images(3, 9, torch.float64)
    expected = model(x)
    for turns in (1, 2, 3):
        torch.testing.assert_close(model(torch.rot90(x, turns, (2, 3))), expected)
    without = OrientedResponseNet(**SMALL, encoding=None).double().eval()
    assert not torch.allclose(without(torch.rot90(x, 1, (2, 3))), without(x))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"orientations": 5}, "orientations: expected 4 or 8, got 5"),
        ({"reduction": 3}, "reduction: expected a divisor of 16, got 3"),
        ({"encoding": "max"}, "encoding: expected 'align', 'pool' or None, got 'max'"),
    ],
)
def test_bad_arguments_of_the_oriented_network(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OrientedResponseNet(**arguments)
