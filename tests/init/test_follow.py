"""The activation that follows a layer: called as a module or a function, after dropout or a reshape, or not at all."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
import bipolar.functional as F
from tests.helpers.signals import variances


@pytest.mark.parametrize("call_", [F.brelu, tF.relu, torch.relu, Tensor.relu, lambda x: tF.relu(x, inplace=True)])
def test_after_functional_activations(call_: Callable[[Tensor], Tensor]) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            assert y.shape[0] == len(y)  # looking at the shape is not using the values
            return self.second(call_(y))

    model, x = Model(), torch.randn(64, 32)
    bipolar.lsuv_(model, x)
    assert call_(model.first(x)).var().item() == pytest.approx(1.0, abs=2e-3)
    assert model(x).var().item() == pytest.approx(1.0, abs=2e-3)


def test_where_something_else_follows_first() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add, self.norm, self.pool = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
            self.squash, self.twice = (nn.Conv2d(4, 4, 1) for _ in range(2))
            self.bn = nn.BatchNorm2d(4)

        def forward(self, x: Tensor) -> Tensor:
            x = tF.relu(x + self.add(x))
            x = tF.relu(self.bn(self.norm(x)))
            x = tF.relu(tF.max_pool2d(self.pool(x), 2))
            x = torch.tanh(self.squash(x))
            return torch.cat([self.twice(x), x], dim=1)

    model, x = Model(), torch.randn(16, 4, 8, 8)
    bipolar.lsuv_(model, x)
    found = variances(model, x)
    for name in ("add", "norm", "pool", "squash", "twice"):
        assert found[name] == pytest.approx(1.0, abs=1e-3)


def test_dropout_in_between_is_looked_through() -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5), nn.Identity(), nn.ELU(), nn.Linear(32, 4))
    x = torch.randn(64, 32)
    bipolar.lsuv_(model, x)
    assert model.eval()[:4](x).var().item() == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("reshape", [lambda y: y.flatten(1), lambda y: y.contiguous(), lambda y: y.t().swapaxes(0, 1)])
def test_a_reshape_that_changes_nothing(reshape: Callable[[Tensor], Tensor]) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 24)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(reshape(self.layer(x)))

    (row,) = bipolar.lsuv_(Flat(), torch.randn(64, 12))
    assert row.at == "relu"


@pytest.mark.parametrize("use", ["the view", "both", "the whole first", "a copy", "the result"])
def test_a_reshape_in_between_is_looked_through(use: str) -> None:
    """The activation sees the output in another shape, which decides what it flips."""

    class Reshaping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.Linear(12, 24), nn.Linear(24, 4)
            nn.init.normal_(self.layer.bias)

        def forward(self, x: Tensor) -> Any:
            y = self.layer(x)
            if use == "a copy":
                return self.last(bipolar.functional.belu(y.unflatten(1, (4, 6)).mT.reshape(-1, 24)))
            view = y.unflatten(1, (2, 12))
            if use == "the result":
                return view
            first = y.sum() if use == "the whole first" else 0.0
            out = bipolar.functional.belu(view, dim=1).flatten(1)
            then = y.sum() if use == "both" else 0.0
            return self.last(out) + first + then

    model, x = Reshaping(), torch.randn(256, 12)
    row = next(iter(bipolar.lsuv_(model, x)))
    y = model.layer(x)
    expected = y
    if use in ("the view", "both"):
        assert row.at == "belu"
        expected = bipolar.functional.belu(y.unflatten(1, (2, 12)), dim=1)
    else:
        assert row.at == "output"
    assert expected.var(correction=0).item() == pytest.approx(1.0, abs=2e-3)


def test_a_bounded_activation_is_not_waited_for() -> None:
    model = nn.Sequential(nn.Linear(32, 32), bipolar.Bipolar(nn.Tanh()), nn.Linear(32, 4))
    x = torch.randn(64, 32)
    report = bipolar.lsuv_(model, x)
    assert model[0](x).var().item() == pytest.approx(1.0, abs=2e-3)
    assert [row.at for row in report] == ["output", "output"]
