"""Replacement of modules within a model."""

from torch import nn

import bipolar
from tests.helpers.folding import BATCH


def test_hooks_on_an_activation_stay() -> None:
    seen = []
    model = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(), nn.Linear(8, 2))
    model[1].register_forward_hook(lambda module, args, output: seen.append(type(module)))
    bipolar.fold(model, BATCH)(BATCH)
    assert seen[-1] is nn.ReLU
