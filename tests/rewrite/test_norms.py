"""Removal of norm layers: outputs stay the same where a norm is folded, and nothing changes that others use."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from bipolar._rewrite.norms import ChannelAffine
from tests.helpers.networks import NormResNet, head, images, kinds


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


def test_a_scale_that_starts_at_zero_is_fresh() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), *head(4))
    nn.init.zeros_(model[1].weight)
    converted = bipolar.convert(model, remove_norm="batch", example=images())
    assert torch.equal(converted[0].weight, model[0].weight)


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
        functions = bipolar.convert(Functions(), activations=activations, remove_norm="batch", example=stream)
        before = stream.clone()
        functions(stream)
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
