"""Conversion of models: what changes, what is left, and a report of both."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from tests.helpers.networks import NETWORKS, Functional, images, kinds

FAMILY = (
    (nn.ReLU(inplace=True), "BReLU(dim=1, inplace=True)"),
    (nn.ReLU6(), "Bipolar(ReLU6(), dim=1)"),
    (nn.LeakyReLU(0.2), "BLeakyReLU(negative_slope=0.2, dim=1)"),
    (nn.PReLU(8), "BPReLU(num_parameters=8, dim=1)"),
    (nn.RReLU(0.1, 0.2), "BRReLU(lower=0.1, upper=0.2, dim=1)"),
    (nn.ELU(0.5), "BELU(alpha=0.5, dim=1)"),
    (nn.SELU(), "BSELU(dim=1)"),
    (nn.CELU(2.0), "BCELU(alpha=2.0, dim=1)"),
    (nn.GELU("tanh"), "BGELU(approximate=tanh, dim=1)"),
    (nn.SiLU(), "BSiLU(dim=1)"),
    (nn.Softplus(2.0), "BSoftplus(beta=2.0, threshold=20.0, dim=1)"),
    (nn.Mish(), "Bipolar(Mish(), dim=1)"),
    (nn.Hardswish(), "Bipolar(Hardswish(), dim=1)"),
)


@pytest.mark.parametrize("with_example", [False, True])
@pytest.mark.parametrize(("activation", "expected"), FAMILY, ids=[type(a).__name__ for a, _ in FAMILY])
def test_every_activation_of_the_family(activation: nn.Module, expected: str, with_example: bool) -> None:
    x = torch.randn(4, 3, 5, 5)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), activation)
    weight = getattr(activation, "weight", None)
    converted = bipolar.convert(model, example=x if with_example else None)
    assert converted.conversion_report["1"].after == expected
    assert model[1] is activation
    torch.manual_seed(0)
    plain = copy.deepcopy(activation).eval()
    twin = bipolar.Bipolar(plain)
    torch.testing.assert_close(converted.eval()(x), twin(model[0](x)))
    if weight is not None:
        assert converted[1].weight is not weight
        assert torch.equal(converted[1].weight, weight)
    in_place = bipolar.convert(model, inplace=True)
    assert in_place is model
    assert str(model[1]) == str(converted[1])
    if weight is not None:
        assert model[1].weight is weight


def test_what_is_not_of_the_family_is_left_and_named() -> None:
    model = nn.Sequential(
        nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid(), nn.LSTM(8, 8), nn.MultiheadAttention(8, 2)
    )
    report = bipolar.convert(model).conversion_report
    assert [(row.name, row.after) for row in report] == [(name, "left") for name in "1345"]
    assert report["1"].note == "not of the ReLU family"
    assert report["4"].note == report["5"].note == "it has activations of its own"
    assert not report.changed
    assert "Tanh" in str(report)


def test_bipolar_activations_stay() -> None:
    model = bipolar.convert(nn.Sequential(nn.Linear(4, 8), nn.ReLU()))
    again = bipolar.convert(model, pattern="halves")
    assert str(again) == str(model)
    assert again.conversion_report["1"].note == "bipolar already"


@pytest.mark.parametrize("with_example", [False, True])
def test_where_the_channels_are(with_example: bool) -> None:
    images_, words = torch.randn(2, 3, 8, 8), torch.randn(2, 5, 4)
    convolution = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    assert bipolar.convert(convolution, example=images_ if with_example else None)[2].dim == 1
    linear = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.ReLU())
    assert bipolar.convert(linear, example=words if with_example else None)[2].dim == -1


def test_by_tracing_it_finds_channels_in_an_unusual_place() -> None:
    class Transposed(nn.Module):
        """A linear layer, whose features are then moved to the front."""

        def __init__(self) -> None:
            super().__init__()
            self.linear, self.act = nn.Linear(4, 6), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.act(self.linear(x).movedim(-1, 0))
            return out

    assert bipolar.convert(Transposed(), example=torch.randn(2, 5, 4)).act.dim == 0
    assert bipolar.convert(NETWORKS["features last, after a permutation"].build(), example=images()).act.dim == -1


def test_an_activation_whose_channels_move_is_left() -> None:
    class Wandering(nn.Module):
        """One activation, after a convolution and on (batch, time, features)."""

        def __init__(self) -> None:
            super().__init__()
            self.act, self.conv, self.linear = nn.ReLU(), nn.Conv2d(3, 6, 1), nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.act(self.conv(x)).flatten(2).transpose(1, 2)
            out: Tensor = self.act(self.linear(x))
            return out

    converted = bipolar.convert(Wandering(), example=images())
    assert isinstance(converted.act, nn.ReLU)
    assert "use one activation per call" in converted.conversion_report["act"].note


def test_mapping() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.clamp(min=0)

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ELU(), nn.Linear(8, 8), Own())
    converted = bipolar.convert(
        model,
        activations={nn.ReLU: "belu", Own: lambda dim, pattern: bipolar.BSELU(dim=dim, pattern=pattern)},
        pattern="halves",
    )
    assert [str(converted[i]) for i in (1, 3, 5)] == [
        "BELU(alpha=1.0, dim=-1, pattern=halves)",
        "ELU(alpha=1.0)",
        "BSELU(dim=-1, pattern=halves)",
    ]
    assert converted.conversion_report["3"].note == "not in the mapping"
    functional = bipolar.convert(Functional(), activations={"relu": bipolar.BELU}, example=images())
    assert "BELU" in kinds(functional)
    with pytest.raises(TypeError, match="activations: the replacement given for '1' made 3, not a module"):
        bipolar.convert(model, activations={nn.ReLU: lambda **_: 3})  # type: ignore[dict-item]


def test_the_fast_recipe_puts_belu_where_the_activation_is_hard() -> None:
    def build() -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Conv2d(4, 4, 1), nn.GELU())

    converted = bipolar.convert(build(), remove_norm="batch", recipe="fast")
    assert [str(converted[i]) for i in (2, 4)] == [
        "BELU(alpha=1.0, dim=1, inplace=True)",
        "BGELU(approximate=none, dim=1)",
    ]
    again = bipolar.convert(build(), like=converted.conversion_report)
    assert str(again) == str(converted)
    functional = bipolar.convert(Functional(), recipe="fast", example=images())
    assert "BELU" in kinds(functional)
    assert "BReLU" not in kinds(functional)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activations": "belu"}, "activations: expected 'auto' or a mapping, got 'belu'"),
        ({"remove_norm": "layer"}, "remove_norm: expected False, 'batch', 'all' or a function, got 'layer'"),
        ({"pattern": "thirds"}, "pattern: expected one of"),
        ({"recipe": "slow"}, "recipe: expected 'paper' or 'fast', got 'slow'"),
        ({"recipe": "fast", "activations": {}}, "recipe: 'fast' chooses the activations; leave out"),
        ({"like": {}, "recipe": "fast"}, "like: it repeats a conversion as it was; leave out"),
        ({"dim": "last"}, "dim: expected a whole number or None, got 'last'"),
        ({"like": {}}, "like: expected a report, or what its to_dict"),
        ({"like": {}, "remove_norm": "all"}, "like: it repeats a conversion as it was; leave out"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=r"model: expected an nn.Module, got 'x'"):
        bipolar.convert("x")  # type: ignore[type-var]  # what is not a model
    with pytest.raises((TypeError, ValueError), match=message):
        bipolar.convert(nn.Linear(2, 2), **options)


@pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
@pytest.mark.parametrize("activation", ["gelu", nn.ReLU()])
def test_a_layer_of_a_transformer(kind: type[nn.Module], activation: Any) -> None:
    layer = kind(8, 2, 16, activation=activation, batch_first=True).eval()
    converted = bipolar.convert(layer)
    bipolar_activation = bipolar.BGELU(dim=-1) if activation == "gelu" else bipolar.BReLU(dim=-1)
    assert str(converted.activation) == str(bipolar_activation)
    assert converted.conversion_report[0].after == str(bipolar_activation)
    expected = copy.deepcopy(layer)
    expected.activation = bipolar_activation
    setattr(expected, "activation_relu_or_gelu", 0)  # noqa: B010 - to mypy a module's attribute is a tensor or module
    x = torch.randn(2, 3, 8)
    given = (x,) if kind is nn.TransformerEncoderLayer else (x, x)
    with torch.no_grad():
        assert torch.equal(converted(*given), expected(*given))
        assert not torch.allclose(converted(*given), layer(*given))


def test_a_layer_of_a_transformer_is_folded() -> None:
    x = torch.randn(3, 5, 8)
    converted = bipolar.convert(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), example=x)
    assert isinstance(converted.activation, bipolar.BReLU)
    plain = bipolar.fold(converted, x, strict=True)
    assert isinstance(plain.activation, nn.ReLU)
    for mode in (True, False):
        with torch.set_grad_enabled(mode):
            assert torch.equal(plain.train(mode)(x), converted.train(mode)(x))


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({tF.relu: "belu"}, "expected classes of modules or names of functions as keys, got .*; say 'relu'"),
        ({nn.ELU: nn.Tanh()}, r"is one module, Tanh\(\), for all places; give its class"),
        ({nn.ELU: lambda module: nn.Tanh()}, "given for '1' is called with dim and pattern"),
    ],
)
def test_bad_mappings(mapping: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"activations: .*{message}"):
        bipolar.convert(nn.Sequential(nn.Linear(4, 4), nn.ELU()), activations=mapping)


def test_an_encoder_with_a_mask() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x, padding = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False] * 3])
    converted = bipolar.convert(encoder)
    assert len(converted.conversion_report.changed) == 2
    with torch.no_grad():
        out = converted(x, src_key_padding_mask=padding)
    torch.testing.assert_close(out, converted(x, src_key_padding_mask=padding))


def test_an_activation_by_hand_is_known_by_what_it_computes() -> None:
    class QuickGELU(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(1.702 * x)

    class SquaredReLUActivation(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.relu() ** 2

    model = nn.Sequential(nn.Linear(4, 8), QuickGELU(), nn.Linear(8, 8), SquaredReLUActivation(), nn.Flatten())
    seen: list[int] = []
    model[1].register_forward_hook(lambda *_: seen.append(1))
    x = torch.randn(3, 4)
    for example in (None, x):
        converted = bipolar.convert(model, example=example)
        assert str(converted.conversion_report["1"].after) == "Bipolar(QuickGELU(), dim=-1)"
        seen.clear()
        assert torch.equal(converted[1](x), bipolar.Bipolar(QuickGELU(), dim=-1)(x))
        assert seen == [1]
    left = bipolar.convert(model).conversion_report["3"]
    assert left.after == "left"
    assert "activations={SquaredReLUActivation: lambda dim, pattern: bipolar.Bipolar(" in left.note


class Crossed(nn.Module):
    """An activation that is registered before its layer, and layers of both kinds."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first, self.act, self.linear, self.conv = first, nn.ReLU(), nn.Linear(4, 6), nn.Conv1d(6, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(self.act(self.linear(self.first(x))).transpose(1, 2))
        return out


class Doubling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], 5, 4)


def test_the_channels_are_found_by_an_input_that_is_made_up_or_asked_for() -> None:
    class Before(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act, self.linear = nn.ReLU(), nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.act(self.linear(x))
            return out

    assert bipolar.convert(Before()).act.dim == -1
    made_up = Crossed(nn.Sequential(nn.Linear(4, 20), Doubling()))
    assert bipolar.convert(made_up).act.dim == -1
    unknown = Crossed(Doubling())
    with pytest.raises(ValueError, match=r"^example: .* channels of act .*; give an input as example, or say dim=1"):
        bipolar.convert(unknown)
    assert bipolar.convert(unknown, example=torch.randn(2, 20)).act.dim == -1
    assert bipolar.convert(unknown, dim=2).act.dim == 2
    assert bipolar.convert(unknown, activations={}).act is not None  # nothing needs it
    with pytest.raises(ValueError, match="channels of the model"):
        bipolar.convert(nn.ReLU())


def test_an_activation_that_the_example_does_not_run_is_left_if_its_channels_are_not_known() -> None:
    class Unused(nn.Module):
        """As Mamba, whose activation is there and is not called."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act, self.linear, self.unused = nn.Conv1d(3, 4, 1), nn.ReLU(), nn.Linear(5, 2), nn.SiLU()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.linear(self.act(self.conv(x)))
            return out

    example = torch.randn(2, 3, 5)
    report = bipolar.convert(Unused(), example=example).conversion_report
    assert report["act"].after == "BReLU(dim=1)"
    assert report["unused"].after == "left"
    assert report["unused"].note.startswith("the example does not run it")
    assert report["unused"].note.endswith("say dim=1 or dim=-1")
    assert bipolar.convert(Unused(), example=example, dim=1).unused.dim == 1


def test_a_function_whose_channels_move_is_left_and_named() -> None:
    class Wandering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear = nn.Conv2d(3, 6, 1), nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            for layer in (self.conv, self.linear):
                x = torch.relu(layer(x)).movedim(1, -1)
            return x

    report = bipolar.convert(Wandering(), example=images()).conversion_report
    assert (report[0].name, report[0].before, report[0].after) == ("(model)", "relu()", "left")
    assert "use one activation per call" in report[0].note


def test_a_mapping_goes_before_what_is_bipolar_already() -> None:
    model = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(dim=-1), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    for example in (None, torch.randn(3, 4)):
        plain = bipolar.convert(model, activations={bipolar.BReLU: "relu"}, example=example)
        assert [type(m) for m in (plain[1], plain[3])] == [nn.ReLU, nn.ReLU]
        assert len(plain.conversion_report.changed) == 1
        other = bipolar.convert(model, activations={"brelu": nn.Tanh, nn.ReLU: None}, example=example)
        assert [type(m) for m in (other[1], other[3])] == [nn.Tanh, nn.ReLU]
        assert other.conversion_report["3"].note == "left, as the mapping says"
        assert bipolar.convert(model, activations={"relu": "belu"}, example=example)[1].dim == -1


def test_a_stacked_rnn() -> None:
    rnn = bipolar.StackedRNN(4, 8, 4, "elu")
    converted = bipolar.convert(nn.ModuleDict({"rnn": rnn}))
    assert str(converted["rnn"].activation) == "BELU(alpha=1.0, dim=-1)"
    assert converted["rnn"].nonlinearity == "belu"
    assert len(converted.conversion_report) == 1
    x = torch.randn(3, 2, 4)
    expected = bipolar.StackedRNN(4, 8, 4, "belu")
    expected.load_state_dict(rnn.state_dict())
    assert torch.equal(converted["rnn"](x)[0], expected(x)[0])


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_converted_trains(name: str) -> None:
    """Forward runs, lsuv_ brings the layers to unit variance, and a few steps reduce the loss."""
    torch.manual_seed(0)
    example = NETWORKS[name].example()
    model = bipolar.convert(NETWORKS[name].build(), example=example)
    changed = [row for row in model.conversion_report.changed if "B" in row.after]
    assert changed
    report = bipolar.lsuv_(model, example)
    assert all(abs(row.after - 1) < 0.01 for row in report if row.after is not None), report
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    target = torch.zeros_like(model(example))
    losses = []
    for step in range(6):
        torch.manual_seed(step % 2)
        loss = tF.mse_loss(model(example), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[1], losses


def test_the_report_is_known_to_type_checkers() -> None:
    model: Crossed = bipolar.convert(Crossed(nn.Identity()), dim=-1)  # mypy knows the class
    report: bipolar.ConversionReport = bipolar.conversion_report(model)
    assert report is vars(model)["conversion_report"]  # also an attribute
    assert report[0] is report.rows[0] is report[report[0].name]
    assert report[-1] is report.rows[-1]
    with pytest.raises(IndexError):
        report[7]
    with pytest.raises(ValueError, match=r"model: Linear was not made by bipolar.convert, and has no report"):
        bipolar.conversion_report(nn.Linear(2, 2))
