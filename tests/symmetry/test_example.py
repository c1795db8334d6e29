"""Example inputs that are made up from the first layer."""

import pytest
import torch
from torch import Tensor, nn

import bipolar
from bipolar._symmetry.example import example_for, inputs_for
from tests.helpers.folding import bipolar_modules


def test_without_an_example() -> None:
    for model in (
        nn.Sequential(nn.Linear(4, 6), bipolar.BReLU(), nn.Linear(6, 2)),
        nn.Sequential(nn.Conv2d(3, 6, 3), bipolar.BReLU(), nn.Flatten(), nn.Linear(6 * 26 * 26, 2)),
        nn.Sequential(nn.Embedding(5, 6), nn.Linear(6, 6), bipolar.BReLU(dim=-1), nn.Linear(6, 2)),
    ):
        assert not bipolar_modules(bipolar.fold(model, strict=True))
    with pytest.raises(ValueError, match=r"^example: no input for Sequential could be made up"):
        bipolar.fold(nn.Sequential(nn.Unflatten(1, (5, 7)), nn.Linear(7, 4), bipolar.BReLU()))


class Reader(nn.Module):
    """Takes two arguments, which its layers do not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        out: Tensor = self.linear(x) + y
        return out


def test_a_module_registers_its_own_inputs() -> None:
    with pytest.raises(ValueError, match=r"^example: no input for Reader could be made up"):
        example_for(Reader(), None)

    class Told(Reader):
        pass

    inputs = (torch.ones(2, 4), torch.ones(6))
    inputs_for.register(Told, lambda module: ["not an input", inputs])
    assert example_for(Told(), None) is inputs
