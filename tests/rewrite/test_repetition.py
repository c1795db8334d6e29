"""Conversions that are repeated from a stored report: the same structure, ready for the weights."""

import json
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from tests.helpers.networks import NETWORKS, NormResNet, images
from tests.rewrite.test_functional_calls import Spelled
from tests.rewrite.test_norm_recognition import BatchNormAct2d, NormReLU


class Mixed(nn.Module):
    """All that a conversion can do: norms folded, left as an affine map, split and dropped; functions and modules."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 1, bias=False), NormReLU(6)
        self.conv, self.act_norm = nn.Conv2d(6, 6, 3, padding=1, bias=False), BatchNormAct2d(6, nn.PReLU(6))
        self.early, self.last = nn.BatchNorm2d(6), nn.Conv2d(6, 6, 3, padding=1)
        self.layer_norm, self.act, self.head = nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act_norm(self.conv(self.norm(self.stem(x))))
        x = tF.leaky_relu(self.last(self.early(x)), 0.2).mean((2, 3))
        out: Tensor = self.head(self.act(self.layer_norm(x)))
        return out


def seen(model: nn.Module) -> nn.Module:
    for _ in range(3):
        model.train()(2 * images() + 1)
    return model.eval()


def test_a_conversion_is_repeated_from_its_report() -> None:
    torch.manual_seed(0)
    model, x = seen(Mixed()), images()
    converted = bipolar.convert(model, remove_norm="all", example=x)
    assert {step["step"] for step in converted.conversion_report.steps} == {
        *("split", "norm", "activation", "functions", "bias")
    }
    assert "early.weight" in converted.state_dict()
    stored = json.loads(json.dumps(converted.conversion_report.to_dict()))
    with torch.device("meta"):
        fresh = Mixed()
    for like in (stored, converted.conversion_report):
        again = bipolar.convert(fresh, like=like)
        assert str(again) == str(converted)
        again = again.to_empty(device="cpu")
        again.load_state_dict(converted.state_dict())
        assert torch.equal(again.eval()(x), converted(x))
        assert again.conversion_report.rows == converted.conversion_report.rows
    plain = bipolar.fold(again, x)
    torch.testing.assert_close(plain(x), converted(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network(name: str) -> None:
    example = NETWORKS[name].example()
    torch.manual_seed(0)
    converted = bipolar.convert(NETWORKS[name].build(), example=example).eval()
    torch.manual_seed(0)
    again = bipolar.convert(NETWORKS[name].build(), like=converted.conversion_report.to_dict()).eval()
    assert str(again) == str(converted)
    assert torch.equal(again(example), converted(example))


def test_functions_out_of_place_and_attributes() -> None:
    for build, x in ((Spelled, torch.randn(6, 4)), (lambda: NormResNet(in_channels=3), images())):
        torch.manual_seed(0)
        converted = bipolar.convert(build(), remove_norm="batch", example=x)
        torch.manual_seed(0)
        again = bipolar.convert(build(), like=converted.conversion_report)
        assert str(again) == str(converted)
        assert torch.equal(again(x), converted(x))


def test_transformer_layers_and_stacks() -> None:
    model = nn.ModuleList([nn.TransformerEncoderLayer(8, 2, 16), bipolar.StackedRNN(4, 8, 2, "elu")])
    converted = bipolar.convert(model)
    again = bipolar.convert(model, like=converted.conversion_report.to_dict())
    assert str(again) == str(converted)
    assert again[0].activation_relu_or_gelu == 0


def test_what_does_not_fit_is_named() -> None:
    class Own(nn.Module):
        def __init__(self, dim: int, pattern: str) -> None:
            super().__init__()

        def forward(self, x: Tensor) -> Tensor:
            return x

    def build() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU())

    report = bipolar.convert(build()).conversion_report.to_dict()
    with pytest.raises(ValueError, match="like: 1 was a ReLU, and is a ELU here"):
        bipolar.convert(nn.Sequential(nn.Linear(4, 8), nn.ELU()), like=report)
    with pytest.raises(ValueError, match="like: Linear has no module '1'; is it another model"):
        bipolar.convert(nn.Linear(4, 8), like=report)
    custom: dict[Any, Any] = {nn.ReLU: Own}
    report = bipolar.convert(build(), activations=custom).conversion_report.to_dict()
    with pytest.raises(ValueError, match="like: 1 became a Own, which a report cannot store; give activations, too"):
        bipolar.convert(build(), like=report)
    assert isinstance(bipolar.convert(build(), like=report, activations=custom)[1], Own)
    report = bipolar.convert(Spelled(), example=torch.randn(6, 4)).conversion_report.to_dict()
    call = report["steps"][0]["calls"][0]
    call["call"]["checksum"] += 1
    with pytest.raises(ValueError, match=r"like: the model: the source of Spelled.forward has changed"):
        bipolar.convert(Spelled(), like=report)
    call["name"] = "x or print"
    with pytest.raises(ValueError, match="is not a call that a report can have"):
        bipolar.convert(Spelled(), like=report)
