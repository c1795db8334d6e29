"""Activations that a module calls as functions: replaced in its source, which stays as it is else; or named."""

import copy
import inspect
import pickle
import random
import sys
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


def test_a_loop_whose_length_the_input_decides() -> None:
    model, x = Dynamic(), torch.randn(3, 4)
    converted = bipolar.convert(model, example=x)
    assert [str(m) for m in (converted.act, converted.activation1)] == ["BReLU(dim=-1)"] * 2
    longer, act = torch.randn(5, 4), bipolar.BReLU(dim=-1)
    hidden = act(model.stem(longer))
    for _ in range(5):
        hidden = act(model.inner(hidden))
    assert torch.equal(converted(longer), model.head(hidden))
    plain = bipolar.fold(converted, x, strict=True)
    assert torch.equal(plain(longer), converted(longer))


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


def test_arguments_attributes_and_buffers_count_at_each_call() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Masked()
            self.shift: Any = 0.0
            self.register_buffer("factor", torch.ones(()))

        def forward(self, x: Tensor, *, deep: bool = False) -> Tensor:
            out = self.block(self.block(x), scale=5.0)
            return tF.relu(self.block(out) if deep else out) * self.factor + self.shift

    model = Twice()
    converted = bipolar.convert(model, example=BATCH)
    assert str(converted.block.activation1) == "BGELU(approximate=none, dim=-1)"
    gelu, relu = bipolar.BGELU(dim=-1), bipolar.BReLU(dim=-1)

    def block(x: Tensor, mask: float, scale: float) -> Tensor:
        return x + scale * gelu(model.block.linear(x)) * mask

    assert torch.equal(converted.block(BATCH, torch.full((6, 1), 0.5), 2.0), block(BATCH, 0.5, 2.0))
    converted.shift = 3.0
    converted.factor.fill_(2.0)
    expected = relu(block(block(block(BATCH, 1, 1), 1, 5), 1, 1)) * 2 + 3
    torch.testing.assert_close(converted(BATCH, deep=True), expected)


def test_the_forward_may_run_differently_in_training() -> None:
    class Other(Net):
        def forward(self, x: Tensor) -> Any:
            return self.out(F.brelu(self.a(x) if self.training else self.b(x), dim=-1))

    model = Other(lambda n: n)
    plain = bipolar.fold(model, BATCH, strict=True)
    for training in (True, False):
        assert torch.equal(plain.train(training)(BATCH), model.train(training)(BATCH))


def test_random_numbers_of_python() -> None:
    class Stochastic(Net):
        def forward(self, x: Tensor) -> Any:
            h = self.a(x)
            if not (self.training and random.random() < 0.5):  # noqa: S311
                h = F.brelu(h, dim=-1)
            return self.out(h)

    report = bipolar.fold(Stochastic(lambda n: n), BATCH).fold_report
    assert "random numbers" in report.summary(), report.summary()
    assert not report.holds


def _outside(x: Tensor) -> Tensor:
    return tF.relu(x)


class Refused(Net):
    def __init__(self, run: Any) -> None:
        super().__init__(lambda n: n)
        self.slope, self.run, self.choice = 0.2, run, tF.relu

    def forward(self, x: Tensor) -> Any:
        return self.out(self.run(self, self.a(x)))

    def slopes(self, x: Tensor) -> Tensor:
        return tF.leaky_relu(x, self.slope)

    def chosen(self, x: Tensor) -> Tensor:
        act = tF.relu if self.training else tF.gelu
        return act(x)

    def part(self, x: Tensor) -> Tensor:
        tF.relu_(x[:, :3])
        return x

    @torch.no_grad()
    def decorated(self, x: Tensor) -> Tensor:
        return tF.relu(x)

    def mapped(self, x: Tensor) -> Tensor:
        return next(map(tF.relu, [x]))

    def several(self, x: Tensor) -> Tensor:
        return tF.relu(*[x])

    def fresh(self, x: Tensor) -> Tensor:
        return nn.ReLU()(x)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (Refused.slopes, r"tF.leaky_relu(x, self.slope) reads self.slope at each call"),
        (Refused.chosen, "which function act(x) calls is decided at each call"),
        (Refused.part, "changes x[:, :3] in place"),
        (lambda _, x: _outside(x), "), which is not a method of Refused"),
        (Refused.fresh, "), which is not a method of Refused"),
        (Refused.decorated, "), whose source is decorated or not known"),
        (Refused.mapped, "is decided at each call"),
        (Refused.several, "the input of tF.relu(*[x]) is not an argument of its own"),
        (lambda _, x: tF.rrelu(x), "rrelu as a function, which is not the same"),
    ],
    ids=["attribute", "variable", "part", "outside", "fresh module", "decorated", "map", "star", "state"],
)
def test_calls_that_no_module_can_replace_are_left_and_named(run: Any, reason: str) -> None:
    model = Refused(run)
    converted = bipolar.convert(model, example=BATCH)
    row = converted.conversion_report["(model)"]
    assert row.after == "left"
    assert reason in row.note
    assert "to have it converted, call a module: B" in row.note
    model.eval(), converted.eval()
    assert torch.equal(converted(BATCH), model(BATCH))


class Spelled(nn.Module):
    """Activations in many spellings: nested, as methods, over lines, in place, in helpers, and held as attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.act: Any = tF.elu
        self.__secret = 2.0

    def forward(self, x: Tensor, *, ä: str = "ö") -> Tensor:  # columns count bytes
        x, _ = torch.relu(self.b(tF.leaky_relu(self.a(x), negative_slope=0.2))), (ä, self.__secret)
        y = self.b(x)
        tF.relu6(y, inplace=True)
        y = (
            self.b(y)
            .relu()  # a comment
            .relu()
        )
        return self._last(y) * self.__secret

    def _last(self, y: Tensor) -> Tensor:
        out: Tensor = self.out(self.act(self.b(y)))
        return out


def by_hand(model: Any, x: Tensor) -> Tensor:
    relu, relu6 = bipolar.BReLU(dim=-1), bipolar.Bipolar(nn.ReLU6(), dim=-1)
    x = relu(model.b(bipolar.BLeakyReLU(0.2, dim=-1)(model.a(x))))
    x = relu(relu(model.b(relu6(model.b(x)))))
    return model.out(bipolar.BELU(dim=-1)(model.b(x))) * 2.0


def test_every_spelling() -> None:
    model = Spelled()
    converted = bipolar.convert(model, example=BATCH)
    assert torch.equal(converted(BATCH), by_hand(model, BATCH))
    assert str(converted.act) == "BELU(alpha=1.0, dim=-1)"
    assert model.act is tF.elu
    assert "# columns count bytes" in inspect.getsource(converted.forward)
    assert inspect.signature(converted.forward) == inspect.signature(model.forward)
    copies = [copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))]  # noqa: S301 - our own
    for other in copies:
        assert torch.equal(other(BATCH), converted(BATCH))
    plain = bipolar.fold(converted, BATCH)
    torch.testing.assert_close(plain(BATCH), converted(BATCH))
    again = bipolar.unfold(plain, BATCH)
    torch.testing.assert_close(again(BATCH), converted(BATCH))


def test_where_only_the_line_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Python 3.10: two calls in one line cannot be told apart."""
    monkeypatch.setattr(sys, "version_info", (3, 10))
    assert isinstance(bipolar.convert(Masked(), example=BATCH).activation1, bipolar.BGELU)

    class Two(Net):
        def forward(self, x: Tensor) -> Any:
            return self.out(tF.relu(self.a(x)) + tF.relu(self.b(x)))

    assert "call a module" in bipolar.convert(Two(lambda n: n), example=BATCH).conversion_report["(model)"].note


def test_a_rewritten_module_compiles_and_exports() -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return tF.relu(x) - x

    class Outer(Net):
        def __init__(self) -> None:
            super().__init__(lambda n: n)
            self.inner = Inner()

        def forward(self, x: Tensor) -> Any:
            return self.out(self.inner(tF.relu(self.a(x))))

    converted = bipolar.convert(Outer(), example=BATCH)
    expected = converted(BATCH)
    compiled = torch.compile(converted, backend="eager", fullgraph=True)
    assert torch.equal(compiled(BATCH), expected)
    assert torch.equal(torch.export.export(converted, (BATCH,), strict=True).module()(BATCH), expected)
    assert torch.equal(torch.fx.symbolic_trace(converted)(BATCH), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert converted(BATCH).dtype is torch.bfloat16
    fresh = bipolar.convert(Outer(), example=BATCH)
    fresh.load_state_dict(converted.state_dict())
    assert torch.equal(fresh(BATCH), expected)


def test_dropout_that_is_always_on_stays_so() -> None:
    class Bayesian(Net):
        def forward(self, x: Tensor) -> Any:
            return self.out(tF.dropout(tF.relu(self.a(x)), 0.5, True))

    converted = bipolar.convert(Bayesian(lambda n: n), example=BATCH).eval()
    assert not torch.equal(converted(BATCH), converted(BATCH))


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
