"""The pass of LSUV: its order, its cost, and layers in unusual use."""

import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from tests.helpers.signals import variances


def test_in_the_order_of_execution_not_of_registration() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.middle, self.first = (nn.Linear(16, 16) for _ in range(3))

        def forward(self, *, x: Tensor, scale: float) -> Tensor:
            return self.last(tF.relu(self.middle(tF.relu(self.first(x * scale)))))

    model, batch = Model(), {"x": torch.randn(64, 16), "scale": 7.0}
    report = bipolar.lsuv_(model, batch)
    assert [row.name for row in report] == ["first", "middle", "last"]
    assert model(**batch).var().item() == pytest.approx(1.0, abs=2e-3)


def test_a_resnet_a_transformer_and_an_lstm_of_others() -> None:
    from transformers import ResNetConfig, ResNetModel

    resnet = ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic"))
    images = {"pixel_values": torch.randn(4, 3, 32, 32)}
    report = bipolar.lsuv_(resnet, images)
    found = variances(resnet, images)
    assert len(report) == 10
    for row in report:  # a norm follows each convolution
        assert found[row.name] == pytest.approx(1.0, abs=1e-3)

    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    tokens = torch.randn(8, 5, 32)
    report = bipolar.lsuv_(encoder, tokens)
    assert {row.note for row in report} == {"", "q, k and v each by itself"}
    assert len(report) == 3 * 4
    for row in report:
        assert row.after == pytest.approx(1.0, abs=1e-3)

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.out = nn.LSTM(16, 32, num_layers=2, batch_first=True), nn.Linear(32, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.lstm(x)[0])

    tagger, x = Tagger(), torch.randn(16, 9, 16)
    bipolar.lsuv_(tagger, x)
    assert tagger(x).var().item() == pytest.approx(1.0, abs=2e-3)


def test_a_hundred_layers_cost_two_forward_passes() -> None:
    calls = 0

    class Counted(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return super().forward(input)

    model = nn.Sequential(*[layer for _ in range(100) for layer in (Counted(16, 16), bipolar.BELU())])
    report = bipolar.lsuv_(model, torch.randn(32, 16))
    assert calls == 200  # one to measure, one to make sure
    assert max(row.rounds for row in report) <= 8


def test_no_activation_outlives_its_use() -> None:
    alive = most = 0

    class Watched(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            nonlocal alive, most
            output = super().forward(input)
            alive += 1
            most = max(most, alive)
            weakref_finalize(output)
            return output

    def weakref_finalize(tensor: Tensor) -> None:

        def gone() -> None:
            nonlocal alive
            alive -= 1

        weakref.finalize(tensor, gone)

    model = nn.Sequential(*[layer for _ in range(50) for layer in (Watched(16, 16), nn.ReLU())])
    bipolar.lsuv_(model, torch.randn(32, 16))
    assert most <= 3


def test_a_weight_that_is_used_again_before_its_first_output_is() -> None:
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.twin, self.head = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(96, 1)
            self.twin.weight = self.encode.weight

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.head(torch.cat([self.encode(a), self.encode(b), self.twin(b)], 1))

    model, pair = Siamese(), (10 * torch.randn(64, 32), 10 * torch.randn(64, 32))
    report = bipolar.lsuv_(model, pair)
    assert model.encode(pair[0]).var().item() == pytest.approx(1.0, abs=2e-3)
    assert model(*pair).var(correction=0).item() == pytest.approx(1.0, abs=2e-3)
    assert report["twin"].note == "tied to 'encode'"


def test_a_layer_whose_output_is_not_seen_in_use_is_left_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        scripted = torch.jit.script(nn.ReLU())
    model = nn.Sequential(nn.Linear(32, 32), scripted, nn.Linear(32, 32))
    weight, x = model[0].weight.detach().clone(), 10 * torch.randn(64, 32)
    report = bipolar.lsuv_(model, x)
    assert report["0"].note == "its output was not seen in use"
    assert torch.equal(model[0].weight, weight)


def test_outputs_in_any_container_are_the_networks_own() -> None:
    @dataclass
    class Output:
        logits: Tensor

    class Model(nn.Linear):
        def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
            super().__init__(8, 8)
            self.inner, self.wrap = nn.Linear(8, 8), wrap

        def forward(self, x: Tensor) -> Any:
            return self.wrap(self.inner(x))

    for wrap in (Output, lambda y: {"a": [y]}, lambda y: (None, y)):
        model, x = Model(wrap), torch.randn(32, 8)
        assert bipolar.lsuv_(model, x, include="inner")["inner"].after == pytest.approx(1.0, abs=1e-3)


def test_a_layer_that_does_more_than_its_weight_says() -> None:
    class Standardised(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            weight = self.weight - self.weight.mean(1, keepdim=True)
            return tF.linear(input, weight / weight.std(1, keepdim=True), self.bias)

    class WithShortcut(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) + 0.5 * input

    model, x = nn.Sequential(WithShortcut(32, 32), nn.ReLU(), Standardised(32, 32)), torch.randn(64, 32)
    report = bipolar.lsuv_(model, x)
    assert model[:2](x).var().item() == pytest.approx(1.0, abs=2e-3)
    assert report["2"].note == "its output does not follow the scale of its weight"


def test_a_bias_that_dominates() -> None:
    layer, x = nn.Linear(32, 32), 1e-3 * torch.randn(64, 32)
    nn.init.constant_(layer.bias, 1e4)
    bipolar.lsuv_(layer, x)
    assert layer(x).double().var(correction=0).item() == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("bias", [-10.0, -100.0, 10.0])
def test_a_relu_that_is_shut_or_open_at_first(bias: float) -> None:
    model, x = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)), torch.randn(64, 32)
    nn.init.constant_(model[0].bias, bias)
    report = bipolar.lsuv_(model, x)
    assert model[:2](x).var().item() == pytest.approx(1.0, abs=2e-3)
    assert report["0"].at == "relu"


class Recurrence(nn.Module):
    """A recurrence whose state starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.vertical, self.horizontal = nn.Linear(8, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.size(1), 16)
        for row in x:
            h = torch.tanh(self.vertical(row) + self.horizontal(h))
        return h


def test_a_recurrence_with_a_first_state_of_zeros_is_measured_at_the_second() -> None:
    model, x = Recurrence(), torch.randn(5, 64, 8)
    report = bipolar.lsuv_(model, x)
    assert report["vertical"].note == "called 5 times, scaled at the first"
    assert report["horizontal"].note == "called 5 times, scaled at call 2, the first whose input was not constant"
    bias = model.horizontal.bias.detach()
    state = torch.tanh(model.vertical(x[0]) + bias)
    assert model.horizontal(state).var(correction=0).item() == pytest.approx(1.0, abs=1e-3)
    assert report.scaled == ["vertical.weight", "horizontal.weight"]


def test_a_recurrence_that_ends_before_it_has_a_state() -> None:
    model = Recurrence()
    before = model.vertical.weight.detach().clone()
    with pytest.raises(bipolar.LSUVError, match="layer 'horizontal': its output has no variance, because its input"):
        bipolar.lsuv_(model, torch.randn(1, 64, 8))
    assert torch.equal(model.vertical.weight, before)
    with pytest.raises(bipolar.LSUVError, match="its input has none in all of its 3 calls; the samples"):
        bipolar.lsuv_(model, torch.zeros(3, 64, 8), include="vertical")
