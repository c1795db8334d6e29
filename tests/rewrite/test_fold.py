"""Folding a bipolar network into a plain one, and back: the same function, to the last bit."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import bipolar
import bipolar.functional as F
from bipolar._activations.patterns import PATTERNS, Pattern
from bipolar._rewrite.fold import SignedRNN
from bipolar.models import CharRNN, OrientedResponseNet, WideResNet
from tests.helpers.networks import CASES, Residual, ValueDependent, head

EXACT = (nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ReLU6)


def converted(name: str, pattern: Pattern = "alternate") -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    case = CASES[name]
    example = case.example()
    return bipolar.convert(case.build(), example=example, pattern=pattern).eval(), example


def bipolar_modules(model: nn.Module) -> list[str]:
    return [name for name, m in model.named_modules() if type(m).__module__ == "bipolar._activations.modules"]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", CASES)
def test_fold_computes_the_same_with_plain_activations(name: str, pattern: Pattern) -> None:
    model, example = converted(name, pattern)
    plain = bipolar.fold(model, example)
    report = plain.fold_report
    expected, found = model(example), plain.eval()(example)
    kinds = [type(m) for m in CASES[name].build().modules()]
    if all(kind in EXACT for kind in kinds if kind.__module__ == "torch.nn.modules.activation"):
        assert torch.equal(expected, found)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    if pattern == "alternate":
        assert report.holds == CASES[name].holds, report
    stay = [name for name, reason in report.activations.items() if reason]
    assert bipolar_modules(plain) == [
        m for m in bipolar_modules(model) if m.removesuffix(".activation") in stay or m in stay
    ]
    assert stay or report.holds


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.holds])
def test_what_breaks_the_symmetry_is_named(name: str) -> None:
    model, example = converted(name)
    report = bipolar.symmetry(model, example)
    assert not report.holds
    assert CASES[name].because in report.summary()
    assert report.broken_by
    with pytest.raises(bipolar.FoldingError, match=r"broken for \d of \d activation"):
        bipolar.fold(model, example, strict=True)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.holds])
def test_unfold_goes_back(name: str) -> None:
    torch.manual_seed(0)
    example = CASES[name].example()
    plain = CASES[name].build().eval()
    model = bipolar.unfold(plain, example, strict=True)
    assert bipolar_modules(model)
    torch.testing.assert_close(model.eval()(example), plain(example), atol=1e-6, rtol=1e-6)
    again = bipolar.fold(model, example, strict=True)
    assert not bipolar_modules(again)
    for (name, p), q in zip(plain.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q), name


LAYERS: dict[str, Callable[[int, int], list[nn.Module]]] = {
    "convolution": lambda a, b: [nn.Conv2d(a, b, 3, padding=1)],
    "grouped": lambda a, b: [nn.Conv2d(a, b, 1, groups=2)],
    "transposed": lambda a, b: [nn.ConvTranspose2d(a, b, 3, padding=1, groups=2)],
    "shuffled": lambda a, b: [nn.ChannelShuffle(2), nn.Conv2d(a, b, 1)],
    "pooled": lambda a, b: [nn.AvgPool2d(3, 1, 1), nn.Conv2d(a, b, 1, bias=False)],
    "max-pooled": lambda a, b: [nn.MaxPool2d(3, 1, 1), nn.Conv2d(a, b, 1)],
    "residual": lambda a, b: [Residual(nn.Conv2d(a, a, 1), bipolar.BReLU(), nn.Conv2d(a, a, 1)), nn.Conv2d(a, b, 1)],
    "shortcut": lambda a, b: [nn.Conv2d(a, b, 1), Residual(bipolar.BReLU(), nn.Conv2d(b, b, 1))],
}


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=4),
    widths=st.lists(st.sampled_from((2, 4, 6)), min_size=4, max_size=4),
    norm=st.booleans(),
    patterns=st.lists(st.sampled_from(PATTERNS), min_size=4, max_size=4),
    seed=st.integers(0, 2**16),
)
def test_any_network_of_such_layers(
    kinds: list[str], widths: list[int], norm: bool, patterns: list[Pattern], seed: int
) -> None:
    torch.manual_seed(seed)
    layers, channels = [], 2
    for kind, width, pattern in zip(kinds, widths, patterns, strict=False):
        layers += [*LAYERS[kind](channels, width), *([nn.BatchNorm2d(width)] if norm else [])]
        layers += [bipolar.BReLU(pattern=pattern)]
        channels = width
    model = nn.Sequential(*layers, *head(channels))
    x = torch.randn(3, 2, 5, 5)
    model.train()(x)  # batch norm learns something
    model.eval()
    before = copy.deepcopy(model.state_dict())
    plain = bipolar.fold(model, x)
    assert torch.equal(plain(x), model(x))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    if "max-pooled" not in kinds[1:] and len(set(patterns[: len(kinds)])) == 1 and patterns[0] == "alternate":
        assert plain.fold_report.holds


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("norm", [None, "batch"])
@pytest.mark.parametrize("activation", ["brelu", "belu", "bselu"])
def test_wide_resnet(activation: str, norm: Any, pattern: Pattern) -> None:
    model = WideResNet(10, 1, activation=activation, norm=norm, pattern=pattern).eval()
    x = torch.randn(2, 3, 16, 16)
    plain = bipolar.fold(model, strict=True)
    tolerance = {"atol": 0.0, "rtol": 0.0} if activation == "brelu" else {"atol": 1e-6, "rtol": 1e-6}
    torch.testing.assert_close(plain(x), model(x), **tolerance)


@pytest.mark.parametrize(("encoding", "holds"), [(None, True), ("pool", False), ("align", False)])
def test_oriented_response_net_folds_up_to_its_alignment(encoding: Any, holds: bool) -> None:
    model = OrientedResponseNet(10, 1, orientations=4, encoding=encoding).eval()
    x = torch.randn(2, 3, 16, 16)
    plain = bipolar.fold(model, x)
    assert torch.equal(plain(x), model(x))
    assert bipolar_modules(plain) == ([] if holds else ["activation.activation"])
    if not holds:
        assert "it takes a maximum" in plain.fold_report.activations["activation.activation"]


def test_a_folded_model_is_saved_and_loaded_as_what_it_is(tmp_path: Any) -> None:
    x = torch.randn(2, 3, 8, 8)
    plain = bipolar.fold(WideResNet(10, 1, dropout=0.0))
    plain.save_pretrained(tmp_path)
    loaded = WideResNet.from_pretrained(tmp_path)
    assert isinstance(loaded.activation, nn.ReLU)
    assert torch.equal(loaded(x), plain(x))
    partly = bipolar.fold(OrientedResponseNet(10, 1, orientations=4), x)
    with pytest.raises(ValueError, match="its modules are not those that its configuration makes"):
        partly.save_pretrained(tmp_path)


@pytest.mark.parametrize("nonlinearity", ["brelu", "belu", "bselu", "bprelu"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_char_rnn(nonlinearity: str, pattern: Pattern) -> None:
    model = CharRNN("abcdefg", 8, 9, nonlinearity=nonlinearity, pattern=pattern).eval()
    model.initialise()
    tokens = torch.randint(7, (6, 3))
    plain = bipolar.fold(model, strict=True)
    assert plain.rnn.nonlinearity == nonlinearity[1:]
    first, state = model(tokens[:3])
    second, _ = model(tokens[3:], state)
    logits, state = plain(tokens[:3])
    torch.testing.assert_close(logits, first, atol=1e-6, rtol=1e-6)
    # the state is the folded model's own: given back to it, it goes on
    torch.testing.assert_close(plain(tokens[3:], state)[0], second, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("input_size", [6, 8])
def test_a_stack_on_its_own(input_size: int) -> None:
    rnn = bipolar.StackedRNN(input_size, 8, 9, "brelu")
    x, state = torch.randn(5, 3, input_size), torch.randn(9, 3, 8)
    plain = bipolar.fold(rnn)
    assert isinstance(plain, SignedRNN)
    assert isinstance(plain.rnn.activation, nn.ReLU)
    for given_state in (None, state):
        for found, expected in zip(plain(x, given_state), rnn(x, given_state), strict=True):
            assert torch.equal(found, expected)
    back = bipolar.unfold(bipolar.fold(rnn).rnn)
    assert isinstance(back.rnn.activation, bipolar.BReLU)


@pytest.mark.parametrize("bias", [True, False])
def test_to_torch(bias: bool) -> None:
    rnn = bipolar.StackedRNN(6, 8, 3, "brelu", skip_every=None, bias=bias, batch_first=True).double()
    folded = bipolar.fold(rnn)
    theirs = SignedRNN(folded.rnn.to_torch(), folded.input_sign, folded.sign)
    assert isinstance(theirs.rnn, nn.RNN)
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(theirs(x), rnn(x))


@pytest.mark.parametrize(
    ("options", "argument"),
    [({}, "nonlinearity"), ({"nonlinearity": "relu"}, "skip_every")]
    + [({"nonlinearity": "relu", "skip_every": None, name: 0.1}, name) for name in ("dropout", "recurrent_dropout")],
)
def test_to_torch_refuses(options: dict[str, Any], argument: str) -> None:
    with pytest.raises(ValueError, match=f"^{argument}:"):
        bipolar.StackedRNN(8, 8, 4, **options).to_torch()


class Between(nn.Module):
    """Takes the last state of a stack, and feeds a second stack that shares its weights."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.up = nn.Linear(3, 8)
        self.first = bipolar.StackedRNN(8, 8, 4, "brelu")
        self.second = self.first if shared else bipolar.StackedRNN(8, 8, 4, "brelu", pattern="halves")
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x, state = self.first(self.up(x))
        x, _ = self.second(x, state)
        out: Tensor = self.head(x + state[-1])
        return out


def test_stacks_that_meet() -> None:
    x = torch.randn(5, 2, 3)
    shared = Between(shared=True)
    plain = bipolar.fold(shared, x, strict=True)
    assert torch.equal(plain(x), shared(x))
    different = Between(shared=False)
    assert torch.equal(bipolar.fold(different, x)(x), different(x))
    assert "another pattern" in bipolar.symmetry(different, x).summary()


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-2, momentum=0.9, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "adamax": lambda p: torch.optim.Adamax(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "radam": lambda p: torch.optim.RAdam(p),
    "rprop": lambda p: torch.optim.Rprop(p),
    "asgd": lambda p: torch.optim.ASGD(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_as_if_nothing_had_happened(name: str) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        Residual(bipolar.BReLU(), nn.Dropout(0.2), nn.Conv2d(6, 6, 3, padding=1)),
        bipolar.BReLU(),
        *head(6),
    ).double()
    x, labels = torch.randn(8, 4, 1, 5, 5, dtype=torch.float64), torch.randint(4, (8, 4))

    def train(network: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
        losses = []
        for step in steps:
            torch.manual_seed(step)
            optimizer.zero_grad()
            loss = tF.cross_entropy(network(x[step]), labels[step])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer, range(4))
    twin, other = copy.deepcopy((model, optimizer))
    alone = train(twin, other, range(4, 8))
    plain = bipolar.fold(model, x[0], strict=True, optimizer=optimizer)
    assert train(plain, optimizer, range(4, 8)) == alone
    again = bipolar.unfold(plain, x[0], strict=True, optimizer=optimizer)
    assert train(again, optimizer, range(4)) == train(twin, other, range(4))


def test_optimizer_of_a_stack() -> None:
    rnn = bipolar.StackedRNN(4, 6, 4, "brelu").double()
    optimizer = torch.optim.Adam(rnn.parameters())
    x = torch.randn(3, 2, 4, dtype=torch.float64)

    def step(network: nn.Module, optimizer: torch.optim.Optimizer) -> float:
        optimizer.zero_grad()
        loss: Tensor = network(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    step(rnn, optimizer)
    twin, other = copy.deepcopy((rnn, optimizer))
    plain = bipolar.fold(rnn, optimizer=optimizer)
    assert [step(plain, optimizer) for _ in range(3)] == [step(twin, other) for _ in range(3)]


def test_an_optimizer_that_is_not_known_is_refused() -> None:
    class Strange(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["third_moment"] = torch.ones_like(p)

    model = nn.Sequential(nn.Linear(4, 6), bipolar.BReLU(), nn.Linear(6, 2))
    optimizer = Strange(model.parameters(), lr=0.1)
    optimizer.step()
    with pytest.raises(ValueError, match="optimizer: whether 'third_moment' of Strange changes its sign"):
        bipolar.fold(model, optimizer=optimizer)
    stranger = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    with pytest.raises(ValueError, match="optimizer: it has parameters that are not the model's"):
        bipolar.fold(model, optimizer=stranger)


def test_values_that_decide_what_runs() -> None:
    model = bipolar.convert(ValueDependent())
    report = bipolar.symmetry(model, torch.randn(3, 4))
    assert "the values of a tensor are read" in report.summary()
    assert bipolar_modules(bipolar.fold(model, torch.randn(3, 4)))


class Invisible(nn.Module):
    """Computes something that no torch function shows."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(4, 6), bipolar.BReLU(), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.jit.script(tF.relu)
        out: Tensor = self.down(hidden(self.act(self.up(x))))
        return out


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_what_is_not_seen_is_not_folded() -> None:
    with pytest.raises(bipolar.FoldingError, match="something that no torch function shows"):
        bipolar.fold(Invisible(), torch.randn(3, 4))


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


def test_without_an_example() -> None:
    for model in (
        nn.Sequential(nn.Linear(4, 6), bipolar.BReLU(), nn.Linear(6, 2)),
        nn.Sequential(nn.Conv2d(3, 6, 3), bipolar.BReLU(), nn.Flatten(), nn.Linear(6 * 26 * 26, 2)),
        nn.Sequential(nn.Embedding(5, 6), nn.Linear(6, 6), bipolar.BReLU(dim=-1), nn.Linear(6, 2)),
    ):
        assert not bipolar_modules(bipolar.fold(model, strict=True))
    with pytest.raises(ValueError, match=r"^example: no input for Sequential could be made up"):
        bipolar.fold(nn.Sequential(nn.Unflatten(1, (5, 7)), nn.Linear(7, 4), bipolar.BReLU()))


def test_what_did_not_run_is_named() -> None:
    model = ValueDependent()
    assert "was not looked at: large." in bipolar.symmetry(model, torch.randn(3, 4)).summary()
    attention = nn.MultiheadAttention(4, 2)
    assert not bipolar.symmetry(attention, (torch.randn(3, 1, 4),) * 3).notes


def test_outputs_that_are_not_numbers() -> None:
    model = nn.Sequential(nn.Linear(4, 6), bipolar.BReLU(), nn.Linear(6, 2))
    nn.init.constant_(model[2].bias, float("nan"))
    assert isinstance(bipolar.fold(model)[1], nn.ReLU)


def test_nothing_to_fold() -> None:
    plain = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    assert bipolar.symmetry(nn.Linear(4, 2)).summary().startswith("No activation here")
    assert not bipolar.fold(plain, strict=True).fold_report.activations  # nothing stays bipolar


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), bipolar.BReLU(), *head(4)).train()
    before = copy.deepcopy(model.state_dict())
    state = torch.random.get_rng_state()
    bipolar.symmetry(model, torch.ones(2, 3, 5, 5))
    plain = bipolar.fold(model, torch.ones(2, 3, 5, 5))
    assert model.training
    assert plain.training
    assert not model._forward_hooks
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert copy.deepcopy(plain).fold_report.holds


def test_shared_weights_that_need_two_signs() -> None:
    class Twice(nn.Module):
        """One layer, before a bipolar activation and before a plain one."""

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.act, self.head = nn.Linear(4, 4), bipolar.BReLU(), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.act(self.layer(torch.relu(self.layer(x)))))
            return out

    model, x = Twice(), torch.randn(3, 4)
    report = bipolar.symmetry(model, x)
    assert not report.holds
    assert "relu" in report.activations["act"]
    assert torch.equal(bipolar.fold(model, x)(x), model(x))
