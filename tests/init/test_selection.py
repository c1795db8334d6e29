"""The layers that LSUV initialises, and those that it leaves alone."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import bipolar
from tests.helpers.signals import variances


def test_include_and_exclude() -> None:
    def names(**selection: Any) -> list[str]:
        model = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.Conv1d(1, 2, 3), "c": nn.Linear(8, 8)})
        model.forward = lambda x: model["c"](model["b"](model["a"](x).unsqueeze(1)).sum(dim=(1, 2), keepdim=True) + x)
        return [row.name for row in bipolar.lsuv_(model, torch.randn(16, 8), **selection)]

    assert names() == ["a", "b", "c"]
    assert names(include="a") == ["a"]
    assert names(include=["a", nn.Conv1d]) == ["a", "b"]
    assert names(exclude=nn.Linear) == ["b"]
    assert names(exclude="[ab]") == ["c"]
    assert names(include=nn.Linear, exclude=lambda name, module: name == "a") == ["c"]
    with pytest.raises(ValueError, match="include: 'z' matches none of the layers a, b, c"):
        names(include="z")


def test_a_layer_itself() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    assert [row.name for row in bipolar.lsuv_(model, torch.randn(16, 8), exclude=model[0])] == ["1"]


def test_modules_used_twice_or_never_frozen_or_tied() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, 16)
            self.twice, self.never, self.frozen = (nn.Linear(16, 16) for _ in range(3))
            self.one, self.other = nn.Linear(16, 16), nn.Linear(16, 16)
            self.decode = nn.Linear(16, 10)
            self.other.weight = self.one.weight
            self.decode.weight = self.embed.weight
            self.frozen.weight.requires_grad_(False)

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.twice(tF.elu(self.twice(self.embed(tokens))))
            return self.decode(self.other(self.one(self.frozen(x))))

    model, tokens = Model(), torch.randint(0, 10, (32, 7))
    before = copy.deepcopy(model.state_dict())
    report = bipolar.lsuv_(model, (tokens,))
    notes = {row.name: row.note for row in report}
    assert notes == {
        "twice": "called 2 times, scaled at the first",
        "frozen": "frozen",
        "one": "",
        "other": "tied to 'one'",
        "decode": "tied to 'embed'",
        "never": "never called",
    }
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"twice.weight", "one.weight", "other.weight"}
    assert model.twice(model.embed(tokens)).var().item() != pytest.approx(1.0, abs=0.1)  # measured after the elu
    assert tF.elu(model.twice(model.embed(tokens))).var().item() == pytest.approx(1.0, abs=2e-3)
    assert variances(model, tokens)["one"] == pytest.approx(1.0, abs=1e-3)


def test_parametrised_weights() -> None:
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(16, 16)),
        nn.ReLU(),
        parametrizations.orthogonal(nn.Linear(16, 16)),
        nn.ReLU(),
        parametrizations.spectral_norm(nn.Linear(16, 16)),
    )
    x = torch.randn(64, 16)
    report = bipolar.lsuv_(model, x)
    assert [row.kind for row in report] == ["Linear"] * 3
    assert [row.note for row in report] == [""] + ["its parametrisation fixes the scale"] * 2
    assert model[:2](x).var().item() == pytest.approx(1.0, abs=2e-3)


def test_frozen_parametrised_layers_stay() -> None:
    frozen = parametrizations.weight_norm(nn.Linear(16, 16)).requires_grad_(False)
    model, before = nn.Sequential(frozen, nn.ReLU(), nn.Linear(16, 4)), frozen.weight.clone()
    assert bipolar.lsuv_(model, torch.randn(32, 16))["0"].note == "frozen"
    assert torch.equal(frozen.weight, before)
