"""Models that look as if they could be folded and cannot, or only as a whole; and models that are hard to look into."""

import copy
import pickle
import random
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
import bipolar.functional as F


class Net(nn.Module):
    """Layers to choose from; what they do is given as a function of the network and its arguments."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.a, self.b, self.out, self.aux = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.act = bipolar.BReLU(dim=-1)
        self.pos = nn.Parameter(torch.randn(10, 8))
        self.run = run

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


def same(model: nn.Module, example: Any, *others: Any, training: bool = False) -> bipolar.SymmetryReport:
    """Folds on an example, and compares on others."""
    torch.manual_seed(0)
    plain = bipolar.fold(model.eval(), example)
    for args in (example, *others):
        arguments = args if isinstance(args, tuple) else (args,)
        for mode in (False, True) if training else (False,):
            found, expected = plain.train(mode)(*arguments), model.train(mode)(*arguments)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    report: bipolar.SymmetryReport = plain.fold_report  # type: ignore[assignment]
    return report


X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


def test_a_table_that_is_used_in_part() -> None:
    model = Net(lambda n, x: n.out(n.act(n.a(x)) + n.pos[: x.size(1)]))
    assert same(model, torch.randn(2, 3, 4), torch.randn(2, 7, 4)).holds
    labelled = Net(lambda n, x, label: n.out(n.act(n.a(x)) + n.pos[label]))
    assert same(labelled, (X, torch.zeros(6, dtype=torch.int64)), (X, torch.arange(6))).holds


@pytest.mark.parametrize(
    "choose",
    [
        lambda h, i: h.gather(1, i),
        lambda h, i: h.index_select(1, i[:, 0]),
        lambda h, i: h[:, i[:, 0]],
        lambda h, i: h[..., i[0]],
    ],
)
def test_channels_that_an_input_chooses(choose: Callable[[Tensor, Tensor], Tensor]) -> None:
    model = Net(lambda n, x, i: choose(n.act(n.a(x)), i))
    even, odd = torch.tensor([[0], [2]]), torch.tensor([[1], [3]])
    assert not same(model, (X[:2], even), (X[:2], odd)).holds


@pytest.mark.parametrize(
    "mix",
    [
        lambda h, m: h + m.float(),
        lambda h, m: h + m,
        lambda h, m: torch.where(m > 0, 1.0, h),
        lambda h, m: h.where(m == 0, torch.ones(8)),
    ],
)
def test_zeros_that_may_be_ones_another_time(mix: Callable[[Tensor, Tensor], Tensor]) -> None:
    model = Net(lambda n, x, m: n.out(mix(n.act(n.a(x)), m)))
    zeros = torch.zeros(6, 8, dtype=torch.int64)
    assert not same(model, (X, zeros), (X, zeros + 1)).holds


def test_a_head_that_is_for_training() -> None:
    model = Net(lambda n, x: (n.out(n.act(n.a(x))), n.aux(n.act(n.a(x)))) if n.training else n.out(n.act(n.a(x))))
    assert same(model, X, training=True).holds


def test_a_head_that_another_argument_chooses_is_named() -> None:
    model = Net(lambda n, x, flag=False: n.aux(n.act(n.a(x))) if flag else n.out(n.act(n.a(x))))
    assert "not looked at: b, aux" in bipolar.symmetry(model, X).summary()


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
    assert isinstance(bipolar.fold(noisy, X)[1], Noisy)
    assert "runs differently in training" in bipolar.symmetry(noisy, X).summary()

    class Around(nn.Module):
        def __init__(self, inner: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
            super().__init__()
            self.a, self.inner, self.out, self.call = nn.Linear(4, 8), inner, nn.Linear(8, 2), call

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.out(self.call(self.inner, self.a(x)))
            return out

    assert same(Around(Two(), lambda f, h: f(h)[0]), X).holds
    assert same(Around(Flagged(), lambda f, h: f(h, flag=True)), X).holds


class Masked(nn.Module):
    """A block with an argument that is None on the example."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        h = tF.gelu(self.linear(x))
        return x + scale * (h if mask is None else h * mask)


def test_arguments_that_a_rewritten_forward_has_fixed() -> None:
    block = bipolar.convert(Masked(), example=X)
    assert "BGELU" in str(block)
    block(X, None)
    block(X, mask=None, scale=1.0)
    for arguments in ((X, torch.zeros(6, 1)), (X, None, 2.0)):
        with pytest.raises(AssertionError, match="has been specialized"):
            block(*arguments)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Masked()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.block(self.block(x), scale=5.0)
            return out

    twice = bipolar.convert(Twice(), example=X)
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
        report = bipolar.fold(model, X).fold_report
        assert reason in report.summary(), report.summary()
        assert not report.holds


def test_dropout_that_is_always_on_stays_so() -> None:
    class Bayesian(Net):
        def forward(self, x: Tensor) -> Any:
            return self.out(tF.dropout(tF.relu(self.a(x)), 0.5, True))

    converted = bipolar.convert(Bayesian(lambda n: n), example=X).eval()
    assert not torch.equal(converted(X), converted(X))

    class Random(Net):
        def forward(self, x: Tensor) -> Any:
            return self.out(tF.rrelu(self.a(x)))

    left = bipolar.convert(Random(lambda n: n), example=X)
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
    converted = bipolar.convert(model, inplace=True, example=X)
    assert converted is model
    assert isinstance(model, Own)
    assert (model.plain_attribute, model.width) == ("kept", 8)
    assert "unused" in model.state_dict()
    assert model.predict(X).shape == (6,)
    assert seen
    again = bipolar.fold(model, X)
    assert isinstance(again.activation1, nn.ReLU)
    assert torch.equal(again(X), model(X))
    copied = copy.deepcopy(model)
    assert torch.equal(copied(X), model(X))
    model._forward_hooks.clear()  # a lambda cannot be pickled


class Picklable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.b(tF.relu(self.a(x)) + torch.ones(8))
        return out


def test_a_rewritten_module_can_be_pickled() -> None:
    model = bipolar.convert(Picklable(), example=X)
    loaded = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own
    assert torch.equal(loaded(X), model(X))
    assert isinstance(loaded, Picklable)


def test_hooks_on_an_activation_stay() -> None:
    seen = []
    model = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(), nn.Linear(8, 2))
    model[1].register_forward_hook(lambda module, args, output: seen.append(type(module)))
    bipolar.fold(model, X)(X)
    assert seen[-1] is nn.ReLU


def test_outputs_within_anything() -> None:
    model = Net(lambda n, x: types.SimpleNamespace(hidden=[n.act(n.a(x))], logits=n.out(n.act(n.a(x)))))
    assert "gives out" in bipolar.symmetry(model, X).summary()
    plain = bipolar.fold(model, X)
    assert torch.equal(plain(X).hidden[0], model(X).hidden[0])


class Recurrent(nn.Module):
    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.up, self.rnn, self.out = nn.Linear(4, 8), bipolar.StackedRNN(8, 8, 4, "brelu"), nn.Linear(8, 2)
        self.start, self.run = nn.Parameter(torch.randn(4, 1, 8)), run

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


def test_states_of_a_stack() -> None:
    x, state = torch.randn(3, 2, 4), torch.randn(4, 2, 8)
    kept = Recurrent(lambda n, x, h: n.out(n.rnn(n.up(x), h)[0]))  # it takes a state, but gives none
    assert not same(kept, (x, state * 0), (x, state)).holds
    encoder = Recurrent(lambda n, x: n.rnn(n.up(x))[1])  # its state is what it is for
    assert not same(encoder, x).holds
    learned = Recurrent(lambda n, x: n.out(n.rnn(n.up(x), n.start.expand(4, 2, 8).contiguous())[0]))
    assert same(learned, x).holds
    carried = Recurrent(lambda n, x, h: (n.out(n.rnn(n.up(x), h)[0]), n.rnn(n.up(x), h)[1]))
    assert "flipped signs" in bipolar.symmetry(carried, (x, state)).summary()


def test_an_autoencoder_with_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act = nn.Conv2d(3, 8, 3), bipolar.BReLU()

        def forward(self, x: Tensor) -> Tensor:
            return tF.conv_transpose2d(self.act(self.conv(x)), self.conv.weight)

    assert same(Tied(), torch.randn(2, 3, 6, 6)).holds


@pytest.mark.parametrize(
    ("run", "holds"),
    [
        (lambda n, x: n.out(n.act(n.a(x)) * tF.softplus(n.pos).mean()), True),
        (lambda n, x: n.out(torch.abs(input=n.act(n.a(x)))), True),
        (lambda n, x: n.out(torch.mean(input=n.act(n.a(x)).unsqueeze(0), dim=0)), True),
        (lambda n, x: n.out(torch.where(x[:, :1] > 0, input=n.act(n.a(x)), other=0.0)), True),
        (lambda n, x: n.out(n.act(n.a(x)) + True), False),
        (lambda n, x: n.out(n.act(n.a(x)) * n.act(n.a(x)).var(False)), False),
        (lambda n, x: tF.linear(n.act(n.a(x)), n.a.bias.view(1, 8)), False),
        (lambda n, x: n.out(n.act(n.a(x))) if torch.isfinite(x).all() else n.aux(n.act(n.a(x))), True),
    ],
)
def test_ways_to_call_functions(run: Callable[..., Any], holds: bool) -> None:
    assert same(Net(run), X, torch.randn(6, 4)).holds == holds


def test_a_custom_operation_is_not_taken_for_one_of_torch() -> None:
    with torch.library._scoped_library("bipolar_test", "DEF") as library:
        library.define("add(Tensor a, Tensor b) -> Tensor")
        library.impl("add", lambda a, b: a.abs() + b, "CompositeImplicitAutograd")
        model = Net(lambda n, x: n.out(torch.ops.bipolar_test.add(n.act(n.a(x)), n.pos[0] * 0)))
        assert "add is not known to keep signs" in bipolar.symmetry(model, X).summary()


def test_the_weight_that_is_computed_is_named() -> None:
    layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 8))
    report = bipolar.symmetry(nn.Sequential(layer, bipolar.BReLU(), nn.Linear(8, 2)), X)
    assert "its weight is not a parameter, but computed" in report.activations["1"]


def test_as_many_as_go_together() -> None:
    """Of two activations that meet, the one that is flipped nowhere there may be folded."""

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.out = nn.Linear(4, 1), nn.Linear(4, 2), nn.Linear(1, 2)
            self.single, self.pair = bipolar.BReLU(), bipolar.BReLU()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            single = self.single(self.one(x))  # one channel, which is never flipped
            return self.out(single), self.pair(self.two(x)).amax(1, keepdim=True) + single

    report = same(Part(), X)
    assert {name: not reason for name, reason in report.activations.items()} == {"single": True, "pair": False}


def test_surroundings() -> None:
    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(dim=-1), nn.Linear(8, 2))

    with torch.inference_mode():
        assert bipolar.symmetry(net(), torch.randn(3, 4)).holds
    compiled = net()
    compiled.compile(backend="eager")
    assert bipolar.symmetry(compiled, X).holds
    assert compiled._compiled_call_impl is not None
    assert bipolar.fold(net().to("meta"), X.to("meta")).fold_report.holds
    with pytest.raises(ValueError, match=r"model: 0.weight has no shape yet"):
        bipolar.symmetry(nn.Sequential(nn.LazyLinear(8), bipolar.BReLU()), X)
    with pytest.raises(ValueError, match="expected"):  # the error of the stack itself, and no other
        bipolar.symmetry(Recurrent(lambda n, x: n.rnn(x)), torch.randn(3, 2, 5))
    single = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), bipolar.BReLU(), nn.Linear(8, 2))
    assert "Not followed in training mode" in bipolar.symmetry(single, X[:1]).summary()


def test_optimizers_that_keep_more() -> None:
    model = nn.Sequential(nn.Linear(4, 6), bipolar.Bipolar(nn.PReLU()), nn.Linear(6, 2)).double()
    optimizer = torch.optim.Adam(model.parameters())
    model(X.double()).square().mean().backward()
    optimizer.step()
    plain = bipolar.fold(model, X.double(), optimizer=optimizer)
    assert {id(p) for p in plain.parameters()} == {id(p) for p in optimizer.param_groups[0]["params"]}
    with pytest.raises(ValueError, match="optimizer: the history of LBFGS"):
        bipolar.fold(plain, X.double(), optimizer=torch.optim.LBFGS(plain.parameters()))
