"""Converting models: what is changed, what is left, and that both are said."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from bipolar._rewrite.norms import ChannelAffine
from tests.helpers.networks import CASES, Dynamic, Functional, NormResNet, head, images


def kinds(model: nn.Module) -> set[str]:
    return {type(m).__name__ for m in model.modules()}


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
        nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid(), nn.LSTM(8, 8), nn.TransformerEncoderLayer(8, 2, 16)
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
    assert bipolar.convert(CASES["features last, after a permutation"].build(), example=images()).act.dim == -1


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
    with pytest.raises(TypeError, match="activations: what is given for '1' made 3, not a module"):
        bipolar.convert(model, activations={nn.ReLU: lambda **_: 3})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activations": "belu"}, "activations: expected 'auto' or a mapping, got 'belu'"),
        ({"remove_norm": "layer"}, "remove_norm: expected False, 'batch', 'all' or a function, got 'layer'"),
        ({"pattern": "thirds"}, "pattern: expected one of"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        bipolar.convert(nn.Linear(2, 2), **options)


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


def trained(model: nn.Module, x: Tensor) -> nn.Module:
    """With batch norms that have seen something, and learned something."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d) and module.affine:
            nn.init.uniform_(module.weight, 0.5, 2)
            nn.init.normal_(module.bias)
    for _ in range(3):
        model.train()(x * 2 + 1)
    return model.eval()


NORMED: dict[str, Callable[[], nn.Module]] = {
    "after a convolution": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), *head(6)
    ),
    "after a grouped one": lambda: nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.BatchNorm2d(6), nn.ReLU(), *head(6)),
    "after a transposed one": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.ReLU(), nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), nn.ReLU(), *head(6)
    ),
    "after a linear layer": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.BatchNorm1d(6), nn.ReLU()),
    "before a convolution": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.ReLU(), nn.BatchNorm2d(4, affine=False), nn.Conv2d(4, 6, 3, bias=False), *head(6)
    ),
    "before a linear layer": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(192, 6), nn.ReLU(), nn.BatchNorm1d(6), nn.Linear(6, 2)
    ),
    "before a padded convolution": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.ReLU(), nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3, padding=1), *head(6)
    ),
    "in a residual network": lambda: NormResNet(in_channels=3),
    "of a shared layer": lambda: Shared(),
}


class Shared(nn.Module):
    """One convolution, called twice, with a batch norm each: it can take up neither."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.first, self.second = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(self.conv(self.first(self.conv(x)).relu()))).mean((2, 3))


@pytest.mark.parametrize("name", NORMED)
def test_a_trained_batch_norm_is_folded_into_its_neighbour(name: str) -> None:
    x = images()
    model = trained(NORMED[name](), x)
    converted = bipolar.convert(model, activations={}, remove_norm="batch", example=x)
    torch.testing.assert_close(converted(x), model(x), atol=1e-5, rtol=1e-5)
    assert not [m for m in converted.modules() if isinstance(m, nn.BatchNorm2d | nn.BatchNorm1d)]
    rest = {name: kind for name, kind in ((n, type(m)) for n, m in converted.named_modules()) if kind is ChannelAffine}
    expected = {
        "before a padded convolution": ["2"],
        "in a residual network": ["blocks.0.norm1", "blocks.1.norm1", "norm"],
        "of a shared layer": ["first", "second"],
    }
    assert list(rest) == expected.get(name, [])
    assert set(converted.state_dict()) <= set(model.state_dict()) | {f"{n}.bias" for n, _ in model.named_modules()}


def test_a_fresh_batch_norm_is_dropped_and_biases_come() -> None:
    model = NormResNet(in_channels=3)
    converted = bipolar.convert(model, remove_norm="batch", example=images())
    assert not [m for m in converted.modules() if isinstance(m, nn.BatchNorm2d)]
    assert [n for n, p in converted.named_parameters() if n not in dict(model.named_parameters())] == [
        "blocks.0.conv1.bias",
        "blocks.1.conv1.bias",
    ]
    assert all(not p.any() for n, p in converted.named_parameters() if n.endswith("conv1.bias"))
    assert model.stem.bias is None


def test_activations_in_place_leave_the_residual_stream_alone() -> None:
    x = images()
    model = NormResNet(in_channels=3)
    converted = bipolar.convert(model, remove_norm="batch", example=x)
    block = converted.blocks[0]
    assert not block.relu1.inplace  # it reads the stream
    assert block.relu2.inplace  # it reads what the convolution gave it alone
    row = converted.conversion_report["blocks.0.relu1"]
    assert "residual stream" in row.note
    assert row.before == "ReLU(inplace=True)"
    stream = torch.randn(2, 8, 4, 4)
    before = stream.clone()
    block(stream)
    assert torch.equal(stream, before)
    plain = bipolar.convert(model, activations={}, remove_norm="batch", example=x)
    assert not plain.blocks[0].relu1.inplace
    assert plain.blocks[0].relu2.inplace

    class Functions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.conv = nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = x + self.conv(tF.relu(self.norm(x), inplace=True))
            return out

    stream = torch.randn(2, 3, 4, 4)
    choices: list[Any] = ["auto", {}]
    for activations in choices:
        converted = bipolar.convert(Functions(), activations=activations, remove_norm="batch", example=stream)
        before = stream.clone()
        converted(stream)
        assert torch.equal(stream, before)


def test_which_norms_go() -> None:
    def build() -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)
        )

    x = images()
    assert "GroupNorm" in kinds(bipolar.convert(build(), remove_norm="batch", example=x))
    everything = bipolar.convert(build(), remove_norm="all", example=x)
    assert not {"GroupNorm", "BatchNorm2d"} & kinds(everything)
    assert everything[0].bias is not None
    assert "cannot be folded" in everything.conversion_report["1"].note
    chosen = bipolar.convert(build(), remove_norm=lambda name, module: name == "1", example=x)
    assert isinstance(chosen[1], nn.Identity)
    assert isinstance(chosen[4], nn.BatchNorm2d)


def test_norms_are_removed_without_an_example_where_one_can_be_made_up() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), *head(8))
    converted = bipolar.convert(model, remove_norm="batch")
    assert isinstance(converted[1], nn.Identity)
    strange = nn.Sequential(nn.Unflatten(1, (5, 7)), nn.BatchNorm1d(5), nn.Linear(7, 2))
    with pytest.raises(ValueError, match=r"^example: no input for Sequential"):
        bipolar.convert(strange, remove_norm="batch")


def test_a_norm_that_never_ran_is_left() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.spare = nn.Linear(4, 2), nn.BatchNorm1d(4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.main(x)
            return out

    converted = bipolar.convert(Auxiliary(), remove_norm="batch", example=torch.randn(3, 4))
    assert isinstance(converted.spare, nn.BatchNorm1d)
    assert converted.conversion_report["spare"].note == "it did not run on this example"


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


def test_a_model_file_tells_the_new_activation(tmp_path: Any) -> None:
    model = bipolar.convert(bipolar.models.WideResNet(10, 1, activation="elu"))
    model.save_pretrained(tmp_path)
    assert isinstance(bipolar.models.WideResNet.from_pretrained(tmp_path).activation, bipolar.BELU)


@pytest.mark.parametrize("name", CASES)
def test_what_is_converted_trains(name: str) -> None:
    """Forward runs, lsuv_ brings the layers to unit variance, and a few steps reduce the loss."""
    torch.manual_seed(0)
    example = CASES[name].example()
    model = bipolar.convert(CASES[name].build(), example=example)
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


class Also(nn.Module):
    """Gives out what is before its batch norm, or what is after it, too."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.conv, self.norm, self.other = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)
        self.run = run

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def _tied(model: Also) -> Also:
    model.other.weight = model.conv.weight
    return model


SHARED: dict[str, Callable[[], nn.Module]] = {
    "what is before is given out": lambda: Also(lambda n, x: torch.cat([y := n.conv(x), n.norm(y)])),
    "what is after is given out": lambda: Also(lambda n, x: torch.cat([y := n.norm(x.relu()), n.other(y)])),
    "a tied weight": lambda: _tied(Also(lambda n, x: n.other(n.norm(n.conv(x)).relu()))),
    "a weight that a function uses": lambda: Also(lambda n, x: tF.conv2d(n.norm(n.conv(x)).relu(), n.conv.weight)),
    "a computed weight": lambda: nn.Sequential(
        torch.nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 3, 1)), nn.BatchNorm2d(3), nn.ReLU()
    ),
    "channels that are not features": lambda: nn.Sequential(
        nn.Flatten(2), nn.Linear(64, 3), nn.BatchNorm1d(3), nn.ReLU()
    ),
    "channels of a sequence": lambda: nn.Sequential(nn.Flatten(2), nn.BatchNorm1d(3), nn.Linear(64, 3)),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_batch_norm_is_not_folded_into_what_others_use(name: str) -> None:
    x = images()
    model = trained(SHARED[name](), x)
    converted = bipolar.convert(model, activations={}, remove_norm="batch", example=x)
    torch.testing.assert_close(converted(x), model(x), atol=1e-5, rtol=1e-5)
    assert "ChannelAffine" in kinds(converted)


def test_what_works_in_place_does_not_reach_the_input() -> None:
    for layers in (
        [nn.BatchNorm2d(3), nn.ReLU(inplace=True)],
        [nn.BatchNorm2d(3), nn.Flatten(2), nn.ReLU(inplace=True), nn.Unflatten(2, (8, 8))],
    ):
        x = images()
        before = x.clone()
        model = nn.Sequential(*layers, nn.Conv2d(3, 4, 1))
        choices: list[Any] = ["auto", {}]
        for activations in choices:
            converted = bipolar.convert(model, activations=activations, remove_norm="batch", example=x)
            assert torch.equal(x, before)
            converted(x)
            assert torch.equal(x, before)


def test_half_of_a_tensor() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.act = nn.Conv2d(3, 6, 1), nn.BatchNorm2d(3), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.conv(x).chunk(2, 1)
            out: Tensor = self.act(self.norm(a)) + b
            return out

    converted = bipolar.convert(Halves(), remove_norm="batch", example=images())
    converted(images()).sum().backward()


def test_a_scale_that_starts_at_zero_is_fresh() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), *head(4))
    nn.init.zeros_(model[1].weight)
    converted = bipolar.convert(model, remove_norm="batch", example=images())
    assert torch.equal(converted[0].weight, model[0].weight)
