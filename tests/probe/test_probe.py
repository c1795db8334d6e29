"""The probe: its figures, its output, and no trace of it in the model."""

import copy
import json
import math
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from tests.helpers.signals import deep, loss


class TestFigures:
    def test_of_the_signal(self) -> None:
        model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4), nn.Tanh())
        model[0].bias.data[:2] = -100.0  # two units that are always 0 after the ReLU
        model[2].bias.data[:] = torch.tensor([50.0, -50.0, 0.0, 0.0])
        x = torch.randn(256, 8)
        layers = bipolar.probe(model, x).layers
        assert [layer.name for layer in layers] == ["0", "1", "2", "3"]
        assert [layer.kind for layer in layers] == ["Linear", "ReLU", "Linear", "Tanh"]
        for i, layer in enumerate(layers):
            output = model[: i + 1](x).detach()
            assert layer.mean == pytest.approx(output.mean().item(), rel=1e-5, abs=1e-6)
            assert layer.variance == pytest.approx(output.var(correction=0).item(), rel=1e-4)
            assert layer.second_moment == pytest.approx(output.square().mean().item(), rel=1e-4)
            assert layer.spread == pytest.approx(output.mean(dim=0).std(correction=0).item(), rel=1e-4)
            assert layer.gradient is None
        assert [layer.dead for layer in layers] == [0.0, 2 / 6, 0.0, 0.0]
        assert layers[0].saturated is None
        assert layers[1].saturated == pytest.approx((model[0](x) <= 0).double().mean().item())
        derivative = 1 - torch.tanh(model[:3](x)).square()
        assert layers[3].saturated == pytest.approx((derivative < 0.05).double().mean().item())

    def test_of_the_gradient(self) -> None:
        model, x = nn.Sequential(nn.Linear(8, 6), nn.ReLU(inplace=True), nn.Linear(6, 4)), torch.randn(32, 8)
        layers = bipolar.probe(model, x, loss).layers
        z = model[0](x)
        h = torch.relu(z)
        y = model[2](h)
        value = loss(y)
        gradients = torch.autograd.grad(value, (z, h, y), retain_graph=True)
        sizes = [gradient.square().mean().sqrt().item() for gradient in gradients]
        assert [layer.gradient for layer in layers] == pytest.approx(sizes, rel=1e-4)
        ratios = [
            (torch.autograd.grad(value, model[i].weight, retain_graph=True)[0].norm() / model[i].weight.norm()).item()
            for i in (0, 2)
        ]
        assert [layers[0].update_ratio, layers[2].update_ratio] == pytest.approx(ratios, rel=1e-4)
        assert layers[1].update_ratio is None

    def test_units_are_channels_of_images_and_features_of_sequences(self) -> None:
        images = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
        images[0].bias.data[0] = -100.0
        assert bipolar.probe(images, torch.randn(4, 1, 8, 8)).layers[1].dead == 0.25
        signals = nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.MaxPool1d(2))
        signals[0].bias.data[0] = -100.0
        assert [layer.dead for layer in bipolar.probe(signals, torch.randn(8, 1, 20)).layers] == [0.0, 0.25, 0.25]
        single = bipolar.probe(images, torch.randn(1, 8, 8))
        assert single.layers[1].dead == 0.25
        maps = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        maps[0].bias.data[:4] = -100.0
        assert bipolar.probe(maps, torch.randn(2, 5, 5, 4)).layers[1].dead == 0.5
        sequences = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), bipolar.BReLU(dim=-1))
        sequences[0].bias.data[0] = -100.0
        layers = bipolar.probe(sequences, torch.randn(4, 7, 3)).layers
        assert layers[1].dead == 0.25
        assert layers[2].dead >= 0.25

    def test_layers_that_are_called_twice_nested_recurrent_or_not_called(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.never, self.twice = nn.Linear(4, 4), nn.Linear(4, 4)
                self.rnn, self.act = nn.LSTM(4, 4, batch_first=True), bipolar.Bipolar(nn.Hardswish(), dim=-1)

            def forward(self, x: Tensor, *, y: Tensor) -> Tensor:
                return self.act(self.rnn(self.twice(self.twice(x + y)))[0])

        model = Model()
        result = bipolar.probe(model, {"x": torch.randn(2, 3, 4), "y": torch.randn(2, 3, 4)}, loss)
        assert [layer.name for layer in result.layers] == ["twice", "twice (2)", "rnn", "act"]
        assert all(layer.gradient is not None and layer.gradient > 0 for layer in result.layers)
        assert result.layers[0].update_ratio == result.layers[1].update_ratio

    def test_on_models_of_others(self) -> None:
        from transformers import ResNetConfig, ResNetForImageClassification

        config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
        resnet = ResNetForImageClassification(config)
        result = bipolar.probe(resnet, {"pixel_values": torch.randn(2, 3, 32, 32)}, lambda out: out.logits.sum())
        assert len(result.layers) > 15
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
        names = [layer.name for layer in bipolar.probe(encoder, torch.randn(2, 5, 16), loss).layers]
        assert "layers.0.self_attn" in names
        assert "layers.1.linear2" in names


class TestNoTrace:
    def test_state_gradients_hooks_and_mode_are_as_before(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        state = copy.deepcopy(model.state_dict())
        bipolar.probe(model, torch.randn(2, 3, 8, 8), loss)
        torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)
        assert all(parameter.grad is None for parameter in model.parameters())
        assert model[1].training

    def test_hooks_are_removed_even_when_the_forward_fails(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(3, 3))
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            bipolar.probe(model, torch.randn(2, 4))
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())

    def test_frozen_layers_have_no_gradient(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).requires_grad_(False)
        model[1].weight.requires_grad_(True)
        layers = bipolar.probe(model, torch.randn(2, 4), loss).layers
        assert [layer.gradient is None for layer in layers] == [True, False]

    def test_a_model_that_is_frozen_altogether_or_has_no_parameters(self) -> None:
        for model in (nn.Linear(4, 4).requires_grad_(False), nn.ReLU()):
            assert bipolar.probe(model, torch.randn(2, 4), loss).layers[0].gradient is None

    def test_the_random_numbers_drawn_are_those_of_the_forward_pass(self) -> None:
        model, x = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.LayerNorm(4)), torch.randn(8, 4)
        state = torch.get_rng_state()
        model(x)
        drawn = torch.get_rng_state()
        torch.set_rng_state(state)
        bipolar.probe(model, x)
        assert torch.equal(torch.get_rng_state(), drawn)

    def test_other_things_than_models_and_losses_are_refused(self) -> None:
        not_a_model: Any = "x"
        with pytest.raises(TypeError, match=r"model: expected an nn\.Module, got str"):
            bipolar.probe(not_a_model, torch.randn(2, 4))
        with pytest.raises(
            TypeError, match="loss: expected a function from the model's output to a scalar, got Tensor"
        ):
            bipolar.probe(nn.Linear(4, 4), torch.randn(2, 4), cast(Any, torch.zeros(())))

    def test_a_loss_that_is_not_a_scalar_is_refused(self) -> None:
        with pytest.raises(ValueError, match="loss: expected a function that gives a scalar tensor"):
            bipolar.probe(nn.Linear(4, 4), torch.randn(2, 4), lambda output: output)


class TestOutput:
    def test_table_and_dictionary(self) -> None:
        result = bipolar.probe(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(8, 4), loss)
        lines = str(result).splitlines()
        assert lines[0].split()[:5] == ["name", "kind", "mean", "variance", "second_moment"]
        assert len(lines) == 4
        content = json.loads(json.dumps(result.to_dict()))
        rows = content["layers"]
        assert content["warnings"] == result.warnings()
        assert [row["name"] for row in rows] == ["0", "1"]
        assert math.isfinite(rows[0]["gradient"])

    def test_it_is_a_sequence_of_layers(self) -> None:
        result = bipolar.probe(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(8, 4))
        assert len(result) == 2
        assert list(result) == result.layers
        assert (result[0], result[-1], result["1"]) == (result.layers[0], result.layers[1], result.layers[1])
        assert result[1:] == result.layers[1:]
        with pytest.raises(KeyError, match="'head' is none of 0, 1"):
            result["head"]
        with pytest.raises(IndexError):
            result[2]

    @pytest.mark.parametrize("depth", [2, 120])
    def test_plot(self, depth: int, tmp_path: Path) -> None:
        result = bipolar.probe(deep(1.4, depth), torch.randn(16, 64), loss)
        figure: Any = result.plot(tmp_path / "signal.png")
        assert (tmp_path / "signal.png").read_bytes().startswith(b"\x89PNG")
        assert [axes.get_ylabel() for axes in figure.axes] == ["variance", "mean", "gradient"]
        assert list(figure.axes[0].get_lines()[-1].get_ydata()) == [layer.variance for layer in result.layers]
        assert len(figure.axes[-1].get_xticklabels()) <= 40
        without = bipolar.probe(deep(1.4, depth), torch.randn(16, 64)).plot()
        assert [axes.get_ylabel() for axes in without.axes] == ["variance", "mean"]

    def test_a_missing_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("bipolar._tools.figures", "bipolar._probe.plot"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(ModuleNotFoundError, match=r"plot needs matplotlib: pip install 'bipolar\[lab\]'"):
            bipolar.probe(nn.Linear(4, 4), torch.randn(8, 4)).plot()


def test_functional_activations_are_not_layers() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return tF.relu(self.linear(x))

    assert [layer.name for layer in bipolar.probe(Model(), torch.randn(2, 4)).layers] == ["linear"]
