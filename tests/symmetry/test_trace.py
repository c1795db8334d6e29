"""Recording of a pass: modes, values that decide what runs, work in place, modules that are hard to look into."""

import copy
import random
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bipolar
import bipolar.functional as F
from tests.helpers.folding import BATCH, Net, Recurrent, assert_folds, bipolar_modules
from tests.helpers.networks import ValueDependent, head


def test_a_head_that_is_for_training() -> None:
    model = Net(lambda n, x: (n.out(n.act(n.a(x))), n.aux(n.act(n.a(x)))) if n.training else n.out(n.act(n.a(x))))
    assert assert_folds(model, BATCH, training=True).holds


def test_a_head_that_another_argument_chooses_is_named() -> None:
    model = Net(lambda n, x, flag=False: n.aux(n.act(n.a(x))) if flag else n.out(n.act(n.a(x))))
    assert "not looked at: b, aux" in bipolar.symmetry(model, BATCH).summary()


class Noisy(nn.Module):
    """An activation, but with noise in training."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x + torch.randn_like(x)
        return F.brelu(x, dim=-1)


class Two(nn.Module):
    """Gives out its input, too."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.brelu(x, dim=-1), x


class Flagged(nn.Module):
    def forward(self, x: Tensor, flag: bool = True) -> Tensor:
        return F.brelu(x, dim=-1) if flag else x


def test_modules_that_are_more_than_an_activation() -> None:
    noisy = nn.Sequential(nn.Linear(4, 8), Noisy(), nn.Linear(8, 2))
    assert isinstance(bipolar.fold(noisy, BATCH)[1], Noisy)
    assert "comes from outside the model" in bipolar.symmetry(noisy, BATCH).summary()

    class Around(nn.Module):
        def __init__(self, inner: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
            super().__init__()
            self.a, self.inner, self.out, self.call = nn.Linear(4, 8), inner, nn.Linear(8, 2), call

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.out(self.call(self.inner, self.a(x)))
            return out

    assert assert_folds(Around(Two(), lambda f, h: f(h)[0]), BATCH).holds
    assert assert_folds(Around(Flagged(), lambda f, h: f(h, flag=True)), BATCH).holds


def test_outputs_within_anything() -> None:
    model = Net(lambda n, x: types.SimpleNamespace(hidden=[n.act(n.a(x))], logits=n.out(n.act(n.a(x)))))
    assert "the model's output: its signs must not change" in bipolar.symmetry(model, BATCH).summary()
    plain = bipolar.fold(model, BATCH)
    assert torch.equal(plain(BATCH).hidden[0], model(BATCH).hidden[0])


def test_surroundings() -> None:
    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(dim=-1), nn.Linear(8, 2))

    with torch.inference_mode():
        assert bipolar.symmetry(net(), torch.randn(3, 4)).holds
    compiled = net()
    compiled.compile(backend="eager")
    assert bipolar.symmetry(compiled, BATCH).holds
    assert compiled._compiled_call_impl is not None
    assert bipolar.fold(net().to("meta"), BATCH.to("meta")).fold_report.holds
    with pytest.raises(ValueError, match=r"model: 0.weight has no shape yet"):
        bipolar.symmetry(nn.Sequential(nn.LazyLinear(8), bipolar.BReLU()), BATCH)
    with pytest.raises(ValueError, match="expected"):  # the error of the stack itself, and no other
        bipolar.symmetry(Recurrent(lambda n, x: n.rnn(x)), torch.randn(3, 2, 5))
    single = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), bipolar.BReLU(), nn.Linear(8, 2))
    assert "Not followed in training mode" in bipolar.symmetry(single, BATCH[:1]).summary()


def test_values_that_decide_what_runs() -> None:
    model = bipolar.convert(ValueDependent())
    report = bipolar.symmetry(model, torch.randn(3, 4))
    assert "the values of a tensor are read" in report.summary()
    assert bipolar_modules(bipolar.fold(model, torch.randn(3, 4)))


class Choosy(nn.Module):
    """Another layer runs if the values are large, or by chance."""

    def __init__(self, tell: str = "", by_chance: bool = False) -> None:
        super().__init__()
        self.a, self.b, self.out, self.act = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), bipolar.BReLU(dim=-1)
        self.tell, self.by_chance, self.large = tell, by_chance, False

    def forward(self, x: Tensor) -> Any:
        large = random.random() < 0.5 if self.by_chance else bool(x.square().mean() > 30)  # noqa: S311
        out = self.out(self.act(self.b(x) if large else self.a(x)))
        if self.tell == "attribute":
            self.large = large
        return (out, large) if self.tell == "output" else out


class Around(nn.Module):
    """A module that may run another way, between others; one activation belongs to both."""

    def __init__(self, inner: Choosy) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(dim=-1), nn.Linear(8, 8), inner.act, nn.Linear(8, 8))
        self.inner, self.after = inner, nn.Sequential(nn.Linear(8, 8), bipolar.BReLU(dim=-1), nn.Linear(8, 2))
        self.other = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        found: Any = self.inner(self.before(x))
        h, large = found if isinstance(found, tuple) else (found, self.inner.large)
        out: Tensor = self.after(self.other(h) if large else h)
        return out


@pytest.mark.parametrize("by_chance", [False, True])
def test_what_runs_around_a_module_that_decides_is_folded(by_chance: bool) -> None:
    model = Around(Choosy(by_chance=by_chance)).eval()
    small, large = torch.randn(6, 4), 1000 * torch.randn(6, 4)
    plain = bipolar.fold(model, small)
    assert {name for name, reason in plain.fold_report.activations.items() if not reason} == {"before.1", "after.1"}
    assert "may decide what runs" in plain.fold_report.activations["before.3"]
    for x in (small, large):
        random.seed(1)
        expected = model(x)
        random.seed(1)
        torch.testing.assert_close(plain(x), expected)


@pytest.mark.parametrize("tell", ["output", "attribute"])
def test_a_decision_that_others_learn_of(tell: str) -> None:
    model = Around(Choosy(tell)).eval()
    report = bipolar.symmetry(model, torch.randn(6, 4))
    if tell == "attribute":  # it is written, but the same as before: a first look does not show it
        model.inner.large = True
        report = bipolar.symmetry(model, torch.randn(6, 4))
    assert all("may decide what runs" in reason for reason in report.activations.values()), report


class InPlace(nn.Module):
    """Changes a view of what it goes on with."""

    def __init__(self, view: bool) -> None:
        super().__init__()
        self.up, self.act, self.down, self.view = nn.Linear(4, 6), bipolar.BReLU(inplace=True), nn.Linear(6, 2), view

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        y = self.act(x)
        y += x  # the same memory: twice the activation
        if self.view:
            y[:, 0].relu_()
        out: Tensor = self.down(y)
        return out


@pytest.mark.parametrize("view", [False, True])
def test_in_place_operations(view: bool) -> None:
    model, x = InPlace(view), torch.randn(3, 4)
    assert torch.equal(bipolar.fold(model, x)(x), model(x))
    assert bipolar.symmetry(model, x).holds == (not view)


def test_a_change_in_place_hinders_only_what_it_touches() -> None:
    def run(n: Net, x: Tensor) -> Tensor:
        h = n.act(n.b(n.pre(x)))
        h[:, 0].mul_(2)
        out: Tensor = n.out(h)
        return out

    model = Net(run)
    model.pre = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(dim=-1), nn.Linear(8, 4))
    report = assert_folds(model, BATCH, torch.randn(3, 4))
    assert not report.activations["pre.1"]
    assert "changed in place through a view" in report.activations["act"]


@pytest.mark.parametrize(("value", "holds"), [(0, True), (0.0, True), (1.0, False), (torch.zeros(8), False)], ids=str)
def test_values_that_are_written(value: Any, holds: bool) -> None:
    def run(n: Net, x: Tensor) -> Tensor:
        h = n.act(n.a(x))
        h[x[:, 0] > 0] = value
        out: Tensor = n.out(h)
        return out

    report = assert_folds(Net(run), BATCH, torch.randn(3, 4))
    assert report.holds == holds
    assert holds or "values are written into it" in report.activations["act"]


def test_what_did_not_run_is_named() -> None:
    model = ValueDependent()
    assert "was not looked at: large." in bipolar.symmetry(model, torch.randn(3, 4)).summary()
    attention = nn.MultiheadAttention(4, 2)
    assert not bipolar.symmetry(attention, (torch.randn(3, 1, 4),) * 3).notes


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), bipolar.BReLU(), *head(4)).train()
    before = copy.deepcopy(model.state_dict())
    attributes = [sorted(vars(module)) for module in model.modules()]
    state = torch.random.get_rng_state()
    bipolar.symmetry(model, torch.ones(2, 3, 5, 5))
    plain = bipolar.fold(model, torch.ones(2, 3, 5, 5))
    assert model.training
    assert plain.training
    assert not model._forward_hooks
    assert [sorted(vars(module)) for module in model.modules()] == attributes
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert copy.deepcopy(plain).fold_report.holds
