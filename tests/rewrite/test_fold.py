"""Folding of a bipolar network into a plain one, and back: the same function, to the last bit."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pack_padded_sequence

import bipolar
from bipolar._activations.patterns import PATTERNS, Pattern
from bipolar._rewrite.fold import SignedRNN
from bipolar.models import CharRNN, OrientedResponseNet, WideResNet
from tests.helpers.folding import bipolar_modules
from tests.helpers.networks import NETWORKS, Residual, converted, head

EXACT = (nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ReLU6)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", NETWORKS)
def test_fold_computes_the_same_with_plain_activations(name: str, pattern: Pattern) -> None:
    model, example = converted(name, pattern)
    plain = bipolar.fold(model, example)
    report = plain.fold_report
    expected, found = model(example), plain.eval()(example)
    kinds = [type(m) for m in NETWORKS[name].build().modules()]
    if all(kind in EXACT for kind in kinds if kind.__module__ == "torch.nn.modules.activation"):
        assert torch.equal(expected, found)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    if pattern == "alternate":
        assert report.holds == NETWORKS[name].holds, report
    stay = [name for name, reason in report.activations.items() if reason]
    assert bipolar_modules(plain) == [
        m for m in bipolar_modules(model) if m.removesuffix(".activation") in stay or m in stay
    ]
    assert stay or report.holds


@pytest.mark.parametrize("name", [name for name, case in NETWORKS.items() if case.holds])
def test_unfold_goes_back(name: str) -> None:
    torch.manual_seed(0)
    example = NETWORKS[name].example()
    plain = NETWORKS[name].build().eval()
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


class Gated(nn.Module):
    """The product of a convolution, and of an activation after another."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.value, self.gate, self.act = nn.Conv2d(inputs, outputs, 1), nn.Conv2d(inputs, outputs, 1), bipolar.BReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.value(x) * self.act(self.gate(x))
        return out


LAYERS["gated"] = lambda a, b: [Gated(a, b)]
LAYERS["weight-normed"] = lambda a, b: [weight_norm(nn.Conv2d(a, b, 3, padding=1))]


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


def test_an_example_without_values_is_refused() -> None:
    """Nothing of it tells where signs go: it would take those of the output away."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), bipolar.BSiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for call in (bipolar.fold, bipolar.symmetry):
        with pytest.raises(ValueError, match=r"^example: expected values.* got tensors without any, \(0, 3, 6, 6\)"):
            call(model, torch.randn(0, 3, 6, 6))


def test_slopes_for_one_sample_without_a_batch_stay_bipolar() -> None:
    """A plain PReLU of torch takes several slopes for the second dimension alone."""
    model = nn.Sequential(nn.Linear(2, 4), bipolar.BPReLU(4, dim=-1), nn.Linear(4, 2))
    x = torch.randn(2)
    folded = bipolar.fold(model, x)
    torch.testing.assert_close(folded(x), model(x))
    assert isinstance(folded[1], bipolar.BPReLU)
    assert isinstance(bipolar.fold(model, torch.randn(3, 2))[1], nn.PReLU)


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
    packed = pack_padded_sequence(x, torch.tensor([2, 5, 3]), enforce_sorted=False)
    for sequences, options in ((packed, {}), (x, {"lengths": [2, 5, 3], "reset": torch.rand(5, 3) < 0.5})):
        found, expected = (model(sequences, state, **options) for model in (plain, rnn))
        torch.testing.assert_close(found, expected)
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


def test_outputs_that_are_not_numbers() -> None:
    model = nn.Sequential(nn.Linear(4, 6), bipolar.BReLU(), nn.Linear(6, 2))
    nn.init.constant_(model[2].bias, float("nan"))
    assert isinstance(bipolar.fold(model)[1], nn.ReLU)


def test_the_report_is_known_to_type_checkers() -> None:
    model = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(), nn.Linear(8, 2))
    plain: nn.Sequential = bipolar.fold(model)  # mypy knows the class
    report: bipolar.SymmetryReport = bipolar.fold_report(plain)
    assert report is vars(plain)["fold_report"]  # also an attribute
    with pytest.raises(ValueError, match=r"model: Sequential was not made by bipolar.fold or unfold"):
        bipolar.fold_report(model)
    with pytest.raises(TypeError, match=r"model: expected a torch.nn.Module, not 3"):
        bipolar.fold(3)  # type: ignore[call-overload]  # what is not a model


def test_a_folded_model_does_not_keep_the_report_of_its_conversion() -> None:
    """With it, convert(like=...) would put bipolar activations beside folded weights."""
    converted = bipolar.convert(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
    folded = bipolar.fold(converted, torch.randn(3, 4))
    with pytest.raises(ValueError, match=r"not made by bipolar\.convert"):
        bipolar.conversion_report(folded)
    assert bipolar.conversion_report(converted)["1"].after == "BReLU(dim=-1)"


def test_an_activation_written_by_hand_comes_back() -> None:
    class Quick(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(1.702 * x)

    x = torch.randn(5, 4)
    bipolar_model = bipolar.convert(nn.Sequential(nn.Linear(4, 8), Quick(), nn.Linear(8, 2)), example=x)
    plain = bipolar.fold(bipolar_model, x)
    back = bipolar.unfold(plain, x)
    assert isinstance(plain[1], Quick)
    assert isinstance(back[1], bipolar.Bipolar)
    assert list(bipolar.symmetry(plain, x).activations) == ["1"]
    assert torch.equal(back[0].weight, bipolar_model[0].weight)
    assert torch.equal(back(x), plain(x))
    assert torch.equal(plain(x), bipolar_model(x))
