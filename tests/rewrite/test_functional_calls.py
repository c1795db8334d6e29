"""Activations that a module calls as functions: replaced where its forward can be traced, else left and named."""

import copy
import pickle
import random
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
import bipolar.functional as F
from tests.helpers.folding import BATCH, Net
from tests.helpers.networks import Dynamic, Functional, images


def test_functions_become_modules() -> None:
    model, x = Functional(), images()
    converted = bipolar.convert(model, example=x)
    assert [str(m) for n, m in converted.named_children() if n.startswith("activation")] == ["BReLU(dim=1)"] * 3
    assert converted.conversion_report["(model)"].before == "relu(), relu(), relu()"
    assert list(converted.state_dict()) == list(model.state_dict())
    # dropout still knows whether the model trains
    assert torch.equal(converted.eval()(x), converted(x))
    assert not torch.equal(converted.train()(x), converted(x))
    unseen = bipolar.convert(model).conversion_report
    assert not unseen.rows
    assert "not seen without an example" in str(unseen)
    converted.load_state_dict(model.state_dict())


def test_a_function_in_place_changes_what_comes_after_it() -> None:
    class Statement(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.head = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.linear(x)
            tF.relu_(x)
            out: Tensor = self.head(x)
            return out

    model, x = Statement(), torch.randn(3, 4)
    converted = bipolar.convert(model, example=x)
    assert torch.equal(converted(x), model.head(bipolar.BReLU()(model.linear(x))))


def test_what_fx_cannot_trace() -> None:
    model, x = Dynamic(), torch.randn(3, 4)
    converted = bipolar.convert(model, example=x)
    assert str(converted.act) == "BReLU(dim=-1)"
    rows = {row.name: row for row in converted.conversion_report}
    assert rows["(model)"].after == "left"
    assert rows["(model)"].note.startswith("functions not seen: torch.fx cannot trace it")
    report = bipolar.symmetry(converted, x)
    assert report.holds == (report.activations == {"act": ""})


def test_functions_are_folded_too() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.mid, self.down = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor, flag: bool = False) -> Tensor:
            x = F.brelu(self.up(x), dim=-1)
            x = F.bleaky_relu(self.mid(x), 0.1, dim=-1, pattern="halves")
            out: Tensor = self.down(x)
            return out if not flag else -out

    model, x = Net(), torch.randn(3, 4)
    plain = bipolar.fold(model, x, strict=True)
    assert torch.equal(plain(x), model(x))
    assert isinstance(plain, Net)
    assert [type(m) for m in plain.children()] == [nn.Linear] * 3 + [nn.ReLU, nn.LeakyReLU]


class Masked(nn.Module):
    """A block with an argument that is None on the example."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        h = tF.gelu(self.linear(x))
        return x + scale * (h if mask is None else h * mask)


def test_arguments_that_a_rewritten_forward_has_fixed() -> None:
    block = bipolar.convert(Masked(), example=BATCH)
    assert "BGELU" in str(block)
    block(BATCH, None)
    block(BATCH, mask=None, scale=1.0)
    for arguments in ((BATCH, torch.zeros(6, 1)), (BATCH, None, 2.0)):
        with pytest.raises(AssertionError, match="has been specialized"):
            block(*arguments)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Masked()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.block(self.block(x), scale=5.0)
            return out

    twice = bipolar.convert(Twice(), example=BATCH)
    assert "different arguments" in twice.conversion_report["block"].note


def test_forwards_that_cannot_be_rewritten() -> None:
    class Other(Net):
        def forward(self, x: Tensor) -> Any:
            return self.out(F.brelu(self.a(x) if self.training else self.b(x), dim=-1))

    class Stochastic(Net):
        def forward(self, x: Tensor) -> Any:
            h = self.a(x)
            if not (self.training and random.random() < 0.5):  # noqa: S311
                h = F.brelu(h, dim=-1)
            return self.out(h)

    for kind, reason in ((Other, "runs differently in training"), (Stochastic, "random numbers")):
        model = kind(lambda n: n)
        report = bipolar.fold(model, BATCH).fold_report
        assert reason in report.summary(), report.summary()
        assert not report.holds


def test_dropout_that_is_always_on_stays_so() -> None:
    class Bayesian(Net):
        def forward(self, x: Tensor) -> Any:
            return self.out(tF.dropout(tF.relu(self.a(x)), 0.5, True))

    converted = bipolar.convert(Bayesian(lambda n: n), example=BATCH).eval()
    assert not torch.equal(converted(BATCH), converted(BATCH))

    class Random(Net):
        def forward(self, x: Tensor) -> Any:
            return self.out(tF.rrelu(self.a(x)))

    left = bipolar.convert(Random(lambda n: n), example=BATCH)
    assert "rrelu as a function" in left.conversion_report["(model)"].note


def test_a_rewritten_module_stays_what_it_was() -> None:
    class Own(Net):
        width = 8

        def __init__(self) -> None:
            super().__init__(lambda n: n)
            self.register_buffer("unused", torch.ones(3))
            self.plain_attribute = "kept"

        def forward(self, x: Tensor) -> Any:
            return self.out(tF.relu(self.a(x)))

        def predict(self, x: Tensor) -> Any:
            return self(x).argmax(-1)

    model, seen = Own(), []
    model.register_forward_hook(lambda *_: seen.append(1))
    converted = bipolar.convert(model, inplace=True, example=BATCH)
    assert converted is model
    assert isinstance(model, Own)
    assert (model.plain_attribute, model.width) == ("kept", 8)
    assert "unused" in model.state_dict()
    assert model.predict(BATCH).shape == (6,)
    assert seen
    again = bipolar.fold(model, BATCH)
    assert isinstance(again.activation1, nn.ReLU)
    assert torch.equal(again(BATCH), model(BATCH))
    copied = copy.deepcopy(model)
    assert torch.equal(copied(BATCH), model(BATCH))
    model._forward_hooks.clear()  # a lambda cannot be pickled


class Picklable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.b(tF.relu(self.a(x)) + torch.ones(8))
        return out


def test_a_rewritten_module_can_be_pickled() -> None:
    model = bipolar.convert(Picklable(), example=BATCH)
    loaded = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own
    assert torch.equal(loaded(BATCH), model(BATCH))
    assert isinstance(loaded, Picklable)
