"""The options per channel and centred: what batch norm does at the start, by weights and biases."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bipolar
from bipolar.models import OrientedResponseNet


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 8), (64, 6)),
        (nn.Conv1d(6, 8, 3), (8, 6, 12)),
        (nn.Conv2d(6, 8, 3, groups=2), (4, 6, 8, 8)),
        (nn.Conv2d(6, 8, 3), (6, 8, 8)),
        (nn.ConvTranspose2d(6, 8, 3, stride=2), (4, 6, 5, 5)),
        (nn.ConvTranspose1d(6, 8, 3, groups=2), (4, 6, 9)),
    ],
)
def test_at_the_output_it_is_batch_norm(layer: Any, shape: tuple[int, ...]) -> None:
    model, x = nn.Sequential(layer, nn.ReLU()), 2 * torch.randn(shape) + 0.5
    weight = nn.init.uniform_(layer.weight).clone()
    report = bipolar.lsuv_(model, x, at="output", orthogonal=False, per_channel=True, centre=True)
    output = layer(x)
    dim = -1 if isinstance(layer, nn.Linear) else -len(layer.kernel_size) - 1
    channels = output.movedim(dim, 0).flatten(1)
    torch.testing.assert_close(channels.mean(1), torch.zeros(8), atol=1e-4, rtol=0)
    torch.testing.assert_close(channels.var(1, correction=0), torch.ones(8), atol=2e-3, rtol=0)
    assert report[0].note == "centred"
    assert report[0].scale == pytest.approx((layer.weight.norm() / weight.norm()).item(), rel=1e-4)


def test_per_channel_keeps_the_size_that_is_asked_for_at_the_activation() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), bipolar.BELU(), nn.Conv2d(8, 8, 3)), torch.randn(8, 3, 10, 10)
    bias = model[0].bias.detach().clone()
    bipolar.lsuv_(model, x, per_channel=True)
    assert model[:2](x).var(correction=0).item() == pytest.approx(1.0, abs=1e-3)
    sizes = (model[0](x) - bias.view(-1, 1, 1)).var((0, 2, 3))
    torch.testing.assert_close(sizes, sizes.mean().expand(8), rtol=1e-3, atol=0)
    assert torch.equal(model[0].bias, bias)


def test_centring_alone_sets_the_biases_before_activations_and_no_others() -> None:
    model, x = (
        nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)),
        torch.rand(64, 8),
    )
    last = model[4].bias.detach().clone()
    report = bipolar.lsuv_(model, x, centre=True)
    for end in (1, 3):
        torch.testing.assert_close(model[:end](x).mean(0), torch.zeros(16), atol=1e-5, rtol=0)
    assert model[:4](x).var(correction=0).item() == pytest.approx(1.0, abs=1e-3)
    assert torch.equal(model[4].bias, last)
    assert [row.note for row in report] == ["centred", "centred", ""]
    assert report.scaled == ["0.weight", "2.weight", "4.weight"]


def test_layers_that_cannot_be_centred_say_so() -> None:
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    model[2].bias.requires_grad_(False)
    before = model[2].bias.clone()
    report = bipolar.lsuv_(model, torch.rand(32, 8), centre=True)
    assert [row.note for row in report] == ["not centred: it has no bias that may change"] * 2
    assert torch.equal(model[2].bias, before)


class TestMaxPooling:
    """Max pooling between a convolution and its activation lifts the mean."""

    @pytest.fixture
    def model(self) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())

    def test_the_report_says_how_far(self, model: nn.Sequential) -> None:
        x = torch.randn(16, 3, 12, 12)
        report = bipolar.lsuv_(model, x)
        pooled = model[:2](x)
        mean, deviation = pooled.mean().item(), pooled.std(correction=0).item()
        assert mean > deviation
        assert report["0"].note == (
            f"max pooling lifts the input of relu to a mean of {mean:.3g} (standard deviation {deviation:.3g}), "
            "where it is almost linear"
        )
        assert report["0"].at == "output"
        assert report["3"].note == ""

    def test_centring_reaches_through_it(self, model: nn.Sequential) -> None:
        x = torch.randn(16, 3, 12, 12)
        report = bipolar.lsuv_(model, x, centre=True)
        torch.testing.assert_close(model[:2](x).mean((0, 2, 3)), torch.zeros(8), atol=1e-5, rtol=0)
        assert report["0"].note == "centred behind max pooling"
        assert model(x).var(correction=0).item() == pytest.approx(1.0, abs=2e-3)  # the pass went on with the new bias

    def test_a_pooling_that_no_activation_follows_is_no_matter(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3))
        assert [row.note for row in bipolar.lsuv_(model, torch.randn(8, 3, 12, 12), centre=True)] == ["", ""]


def test_an_error_puts_biases_back() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("no more")

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), Fails())
    before = model[0].bias.detach().clone()
    with pytest.raises(RuntimeError, match="no more"):
        bipolar.lsuv_(model, torch.rand(16, 8), centre=True, per_channel=True)
    assert torch.equal(model[0].bias, before)


def test_channels_that_share_weights_have_one_scale() -> None:
    model = OrientedResponseNet(depth=10, widen_factor=1)
    report = bipolar.lsuv_(model, torch.randn(4, 3, 32, 32), per_channel=True)
    assert any("its channels share weights: one scale for all" in row.note for row in report)
