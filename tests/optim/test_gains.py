"""Learned gains of pinned filters, beside weight normalisation written out."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bipolar.optim import Muon, groups, pin
from bipolar.optim._gains import BETAS, EPS, LEAST

#: what is pinned
WEIGHTS = ("0.weight", "2.weight")


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.ELU(), nn.Linear(6, 5), nn.ELU(), nn.Linear(5, 2)).double()


def data(step: int) -> Tensor:
    return torch.randn(16, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(step))


def loss(model: nn.Module, step: int) -> Tensor:
    x = data(step)
    out: Tensor = (model(x) - x[:, :2].sin()).square().mean()
    return out


def test_against_a_factor_that_autograd_differentiates() -> None:
    """The direction by SGD, the gain as a parameter of its own, by torch's Adam."""
    torch.manual_seed(0)
    model, twin = network(), network()
    twin.load_state_dict(model.state_dict())
    rate, share = 0.05, 0.2
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    pin(optimizer, model, gain=share)
    norms = {name: p.detach().norm(dim=1, keepdim=True) for name, p in twin.named_parameters() if name in WEIGHTS}
    gains = {name: nn.Parameter(torch.ones_like(n)) for name, n in norms.items()}
    adam = torch.optim.Adam(gains.values(), lr=share * rate, betas=BETAS, eps=EPS)
    sgd = torch.optim.SGD(twin.parameters(), lr=rate)
    for step in range(8):
        optimizer.zero_grad()
        loss(model, step).backward()
        optimizer.step()
        sgd.zero_grad()
        adam.zero_grad()
        loss(twin, step).backward()
        weights = dict(twin.named_parameters())
        directions = {name: nn.functional.normalize(weights[name].detach()) for name in norms}
        changed = {name: gains[name] * norms[name] * directions[name] for name in norms}
        x = torch.func.functional_call(twin, {**{n: p.detach() for n, p in weights.items()}, **changed}, data(step))
        (x - data(step)[:, :2].sin()).square().mean().backward()
        sgd.step()
        adam.step()
        with torch.no_grad():
            for name in norms:
                weights[name].copy_(gains[name] * norms[name] * nn.functional.normalize(weights[name]))
        torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert max(float((g.detach() - 1).abs().max()) for g in gains.values()) > 0.02  # they have moved


def test_the_rate_follows_a_schedule() -> None:
    model = network()
    optimizer = Muon(groups(model), 0.05)
    pin(optimizer, model, gain=0.2)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    before = copy.deepcopy(model.state_dict())
    loss(model, 0).backward()
    optimizer.step()
    torch.testing.assert_close(model.state_dict(), before)


def test_a_gain_does_not_vanish() -> None:
    model = network()
    norms = model[0].weight.detach().norm(dim=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    pin(optimizer, model, gain=200.0)
    for step in range(3):
        optimizer.zero_grad()
        loss(model, step).backward()
        for p in model.parameters():
            p.grad = p.detach().clone()  # downhill is towards zero
        optimizer.step()
    torch.testing.assert_close(model[0].weight.detach().norm(dim=1), LEAST * norms)


def test_training_resumes_on_the_same_path(tmp_path: Any) -> None:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int) -> None:
        for step in range(first, first + 4):
            optimizer.zero_grad()
            loss(model, step).backward()
            optimizer.step()

    model = network()
    optimizer = Muon(groups(model), 0.05)
    pin(optimizer, model, gain=0.2)
    train(model, optimizer, 0)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "saved")
    train(model, optimizer, 4)
    saved = torch.load(tmp_path / "saved", weights_only=True)
    other = network()
    resumed = Muon(groups(other), 0.05)
    pin(resumed, other, gain=0.2)
    other.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    train(other, resumed, 4)
    torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=0, atol=0)
    without = Muon(groups(other), 0.05)
    pin(without, other)
    with pytest.raises(ValueError, match="saved with gains or without"):
        without.load_state_dict(saved["optimizer"])


def test_wrong_uses_are_named() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="gain: expected a positive number, or None for none, got 0"):
        pin(optimizer, model, gain=0)
    pin(optimizer, model, gain=0.1)
    with pytest.raises(RuntimeError, match="give no closure"):
        optimizer.step(lambda: 0.0)


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_scaler(fused: bool) -> None:
    """Also where it leaves the gradients scaled, and the skipping of steps, to a fused optimiser."""
    torch.manual_seed(0)
    model, twin = network().float(), network().float()
    twin.load_state_dict(model.state_dict())
    optimizers = [torch.optim.Adam(each.parameters(), lr=0.01, fused=fused) for each in (model, twin)]
    for optimizer, each in zip(optimizers, (model, twin), strict=True):
        pin(optimizer, each, gain=0.2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, growth_interval=100)
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
    for factor in (1e30, 1.0, 1.0):  # the first overflows, and halves the scale
        for optimizer in optimizers:
            optimizer.zero_grad()
        scaler.scale(factor * model(x).square().mean()).backward()
        scaler.step(optimizers[0])
        scaler.update()
        if factor == 1.0:
            twin(x).square().mean().backward()
            optimizers[1].step()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.isfinite(ours).all()
        torch.testing.assert_close(ours, theirs)


def test_a_state_without_a_pin_starts_the_gains_anew() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    plain = optimizer.state_dict()
    pin(optimizer, model, gain=0.5)
    loss(model, 0).backward()
    optimizer.step()
    norms = model[0].weight.detach().norm(dim=1)
    with pytest.warns(UserWarning, match="saved without a pin"):
        optimizer.load_state_dict(plain)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    torch.testing.assert_close(model[0].weight.detach().norm(dim=1), norms)


def test_a_state_that_is_refused_changes_nothing() -> None:
    model = network()
    with_gains, without = (torch.optim.SGD(model.parameters(), lr=0.0) for _ in range(2))
    pin(with_gains, model, gain=0.5)
    handle = pin(without, model)
    saved = without.state_dict()
    saved["pinned_norms"] = {name: 2 * value for name, value in saved["pinned_norms"].items()}
    handle.remove()
    norms = model[0].weight.detach().norm(dim=1)
    with pytest.raises(ValueError, match="saved with gains or without"):
        with_gains.load_state_dict(saved)
    loss(model, 0).backward()
    with_gains.step()
    torch.testing.assert_close(model[0].weight.detach().norm(dim=1), norms)
