"""A bipolar model and its plain twin: the same function at the start."""

from typing import Any

import pytest
import torch

from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.models import CharRNN


@pytest.mark.parametrize("pattern", ["alternate", "halves"])
def test_a_bipolar_model_starts_as_the_plain_one_of_the_same_seed(pattern: Any) -> None:
    def start(name: str) -> CharRNN:
        torch.manual_seed(1)
        model = TextConfig(model=TextModel(8, 6, nonlinearity=name, pattern=pattern)).build("abcde")
        assert isinstance(model, CharRNN)
        return model

    plain, flipped = start("elu"), start("belu")
    for (u, w, _), (plain_u, plain_w, _) in zip(flipped.rnn.layers(), plain.rnn.layers(), strict=True):
        for weight, other in ((u, plain_u), (w, plain_w)):  # the gains of the two differ, and LSUV sets them anew
            torch.testing.assert_close(weight.abs() / weight.norm(), other.abs() / other.norm())
            with torch.no_grad():
                other.mul_(weight.norm() / other.norm())
    tokens = torch.randint(5, (7, 3))
    torch.testing.assert_close(plain(tokens)[0], flipped(tokens)[0])
    assert not torch.allclose(plain(tokens)[1], flipped(tokens)[1])
