"""Models and batches that LSUV refuses: the message names the layer and the reason, and nothing changes."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import bipolar
from tests.helpers.signals import mlp


class TestBadInput:
    @pytest.fixture
    def model(self) -> nn.Sequential:
        return mlp(nn.ReLU(), nn.ReLU())

    def refused(self, model: nn.Module, batch: Any, message: str, **options: Any) -> None:
        before, flags = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
        with pytest.raises(bipolar.LSUVError, match=message):
            bipolar.lsuv_(model, batch, **options)
        torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0, equal_nan=True)
        assert [m.training for m in model.modules()] == flags
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_a_batch_that_is_not_finite(self, model: nn.Module, value: float) -> None:
        x = torch.randn(8, 48)
        x[3, 5] = value
        self.refused(model, x, "batch: there is NaN or infinity in it")

    def test_nan_after_a_layer(self, model: nn.Sequential) -> None:
        model[2].bias.data[0] = math.nan
        self.refused(model, torch.randn(8, 48), r"layer '2': its variance gives NaN or infinity")

    def test_nan_before_a_layer(self, model: nn.Sequential) -> None:
        model.insert(2, bipolar.Bipolar(lambda x: x / 0.0))
        self.refused(model, torch.randn(8, 48), r"layer '3': there is NaN or infinity in its input")

    def test_a_batch_without_variance(self) -> None:
        model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Conv2d(1, 1, 1))
        self.refused(
            model, torch.ones(4, 1, 3, 3), r"layer '0': its output has no variance, because its input has none"
        )

    def test_a_dead_layer(self, model: nn.Sequential) -> None:
        nn.init.zeros_(model[2].weight)
        self.refused(model, torch.randn(8, 48), r"layer '2' is dead: its weight makes the same", orthogonal=False)
        model[3] = nn.Threshold(1e30, 0.0)
        self.refused(model, torch.randn(8, 48), r"layer '2': its variance is 0 at every scale: the layer is dead")

    def test_nothing_to_initialise(self) -> None:
        self.refused(
            nn.Sequential(nn.ReLU()), torch.randn(2, 2), "model: there is no layer to initialise in Sequential"
        )

    def test_an_error_after_an_orthogonal_parametrisation(self) -> None:
        layer = parametrizations.orthogonal(nn.Linear(16, 16))
        weight = layer.weight.detach().clone()
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            bipolar.lsuv_(nn.Sequential(layer, nn.Linear(3, 3)), torch.randn(8, 16))
        torch.testing.assert_close(layer.weight.detach(), weight)

    def test_nothing_that_can_be_initialised(self) -> None:
        model = nn.Sequential(nn.Linear(8, 8)).requires_grad_(False)
        self.refused(model, torch.randn(4, 8), "model: no layer of it can be initialised: frozen")

    def test_no_convergence(self, model: nn.Sequential) -> None:
        nn.init.normal_(model[0].bias, std=3.0)
        self.refused(
            model,
            torch.randn(64, 48),
            r"layer '0': its variance did not come within 0.001 of 1 in \d+ rounds",
            at="output",
        )

    def test_a_model_that_fails(self, model: nn.Sequential) -> None:
        before = copy.deepcopy(model.state_dict())
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            bipolar.lsuv_(nn.Sequential(model, nn.Linear(3, 3)), torch.randn(8, 48))
        torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"target": "mean"}, "target: expected 'variance' or 'second_moment', got 'mean'"),
            ({"at": "input"}, "at: expected 'activation' or 'output', got 'input'"),
            ({"tol": 0.0}, "tol: expected a positive number, got 0"),
            ({"max_iter": 0}, "max_iter: expected at least 1, got 0"),
        ],
    )
    def test_arguments(self, model: nn.Module, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            bipolar.lsuv_(model, torch.randn(8, 48), **options)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"tol": "1e-3"}, "tol: expected a number, got '1e-3'"),
            ({"max_iter": 1.5}, "max_iter: expected a whole number, got 1.5"),
        ],
    )
    def test_types_of_arguments(self, model: nn.Module, options: dict[str, Any], message: str) -> None:
        with pytest.raises(TypeError, match=message):
            bipolar.lsuv_(model, torch.randn(8, 48), **options)
