"""LSUV changes nothing but the weights."""

import copy

import pytest
import torch
from torch import Tensor, nn

import bipolar
from tests.helpers.signals import mlp, variances


def test_a_buffer_that_the_forward_replaces() -> None:
    class Counting(nn.Linear):
        count: Tensor

        def __init__(self) -> None:
            super().__init__(8, 8)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, input: Tensor) -> Tensor:
            self.count = self.count + 1
            return super().forward(input)

    model = Counting()
    buffer = model.count
    bipolar.lsuv_(model, torch.randn(16, 8))
    bipolar.probe(model, torch.randn(16, 8))
    assert model.count is buffer
    assert buffer.item() == 0


def test_everything_but_the_weights_is_as_before() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(288, 4),
    )
    model[3].eval()
    model[0].bias.requires_grad_(False)
    model[0].register_forward_hook(lambda *_: None)
    x = torch.randn(8, 3, 8, 8)
    state, training = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    grads = [p.requires_grad for p in model.parameters()]
    rng, batch = torch.get_rng_state(), x.clone()
    bipolar.lsuv_(model, x, generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), rng)
    assert [m.training for m in model.modules()] == training
    assert [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()] == hooks
    assert [p.requires_grad for p in model.parameters()] == grads
    assert torch.equal(x, batch)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, state[name])}
    assert changed == {"0.weight", "5.weight"}
    assert model[0].weight.grad_fn is None


def test_batch_norm_runs_on_the_statistics_of_the_batch() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3))
    model[1].running_var.fill_(100.0)
    x = torch.randn(8, 3, 8, 8)
    bipolar.lsuv_(model, x)
    assert variances(model, x)["2"] == pytest.approx(1.0, abs=1e-3)
    assert model[1].running_var.tolist() == [100.0] * 8


def test_a_generator_makes_it_repeatable() -> None:
    base, x = mlp(nn.ELU()), torch.randn(32, 48)
    one, two = copy.deepcopy(base), copy.deepcopy(base)
    for model in (one, two):
        torch.rand(1)
        bipolar.lsuv_(model, x, generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(one.state_dict(), two.state_dict(), rtol=0, atol=0)


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    bipolar.lsuv_(mlp(nn.ReLU()), torch.randn(32, 48))
    assert capsys.readouterr() == ("", "")


def test_a_compiled_model_is_reached_through_its_wrapper() -> None:
    model = mlp(nn.ReLU())
    report = bipolar.lsuv_(torch.compile(model), torch.randn(32, 48))
    assert len(report) == 2
