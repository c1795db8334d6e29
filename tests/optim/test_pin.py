"""Pinned weights: their norms stay, their directions are the optimiser's own, and everything else is as before."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import bipolar
from bipolar.optim import Muon, groups, pin

OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1),
    "SGD foreach": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, foreach=True),
    "AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
    "Adam fused": lambda model: torch.optim.Adam(model.parameters(), lr=0.01, fused=True),
    "Muon": lambda model: Muon(groups(model), 0.05),
}


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.ELU(),
        nn.Conv2d(6, 4, 3),
        nn.ELU(),
        nn.Flatten(),
        nn.Linear(16, 5),
        nn.ELU(),
        nn.Linear(5, 2),
    )


def gradients(model: nn.Module, seed: int) -> None:
    model.zero_grad()
    model(torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(seed))).square().mean().backward()


def slow_norms(weight: Tensor) -> list[float]:
    """The norm of each filter, one after another."""
    return [sum(float(value) ** 2 for value in filter_.flatten()) ** 0.5 for filter_ in weight.detach()]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_each_filter_turns_as_the_optimizer_says_and_keeps_its_norm(kind: str) -> None:
    model = network()
    optimizer = OPTIMIZERS[kind](model)
    norms = {name: slow_norms(p) for name, p in model.named_parameters() if p.ndim > 1}
    free = copy.deepcopy((model, optimizer))
    handle = pin(optimizer, model)
    assert handle.pinned == ["0.weight", "2.weight", "5.weight"]
    for step in range(5):
        free[0].load_state_dict(model.state_dict())
        free[1].load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for each in (model, free[0]):
            gradients(each, step)
        optimizer.step()
        free[1].step()
        unpinned = dict(free[0].named_parameters())
        for name, p in model.named_parameters():
            if name in handle.pinned:
                assert slow_norms(p) == pytest.approx(norms[name], rel=1e-6)
                torch.testing.assert_close(
                    nn.functional.normalize(p.flatten(1)), nn.functional.normalize(unpinned[name].flatten(1))
                )
                assert not torch.allclose(p, unpinned[name], rtol=1e-4)
            else:
                assert torch.equal(p, unpinned[name])


def test_norms_do_not_drift_over_many_steps() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = model[2].weight.detach().flatten(1).norm(dim=1)
    pin(optimizer, model)
    for step in range(200):
        gradients(model, step)
        optimizer.step()
    torch.testing.assert_close(model[2].weight.detach().flatten(1).norm(dim=1), before, rtol=1e-6, atol=0)


def test_the_norm_of_a_whole_matrix() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    whole, filters = model[2].weight.detach().norm(), slow_norms(model[2].weight)
    handle = pin(optimizer, model, by="matrix")
    assert [handle[name].norms for name in handle.pinned] == [1, 1, 1]
    for step in range(5):
        gradients(model, step)
        optimizer.step()
    torch.testing.assert_close(model[2].weight.detach().norm(), whole)
    assert slow_norms(model[2].weight) != pytest.approx(filters, rel=1e-3)


def test_the_filters_of_a_transposed_convolution_are_its_outputs() -> None:
    model = nn.Sequential(
        nn.ConvTranspose2d(4, 3, 2), nn.ConvTranspose2d(3, 2, 2), nn.ConvTranspose2d(2, 2, 2, groups=2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = slow_norms(model[0].weight.transpose(0, 1))
    handle = pin(optimizer, model, last=())
    assert [handle[f"{i}.weight"].norms for i in range(3)] == [3, 2, 0]
    assert "several groups" in handle["2.weight"].note
    model(torch.randn(2, 4, 3, 3)).square().mean().backward()
    optimizer.step()
    assert slow_norms(model[0].weight.transpose(0, 1)) == pytest.approx(before, rel=1e-6)


def test_memory_format_and_half_precision_stay() -> None:
    model: Any = network()
    model.to(memory_format=torch.channels_last)
    model[5].to(torch.bfloat16)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.ndim > 1], lr=0.1)
    before = [model[i].weight.detach().float().norm() for i in (0, 2, 5)]
    pin(optimizer, model)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
    after = [model[i].weight.detach().float().norm() for i in (0, 2, 5)]
    torch.testing.assert_close(before, after, rtol=1e-2, atol=0)
    assert model[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert model[5].weight.dtype == torch.bfloat16


def test_the_report_says_what_is_left_out_and_why() -> None:
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(4, 3),
            "plain": nn.Linear(3, 3),
            "frozen": nn.Linear(3, 3, bias=False).requires_grad_(False),
            "tied": nn.Linear(3, 3, bias=False),
            "twin": nn.Linear(3, 3, bias=False),
            "reparametrised": parametrizations.weight_norm(nn.Linear(3, 3, bias=False)),
            "unknown": nn.Linear(3, 3, bias=False),
            "zero": nn.Linear(3, 3, bias=False),
            "unwanted": nn.Linear(3, 3, bias=False),
            "norm": nn.LayerNorm((3, 3), bias=False),
            "head": nn.Linear(3, 2, bias=False),
        }
    )
    model["twin"].weight = model["tied"].weight
    nn.init.zeros_(model["zero"].weight[1])
    known = [p for name, p in model.named_parameters() if not name.startswith("unknown")]
    handle = pin(torch.optim.SGD(known, lr=0.1), model, exclude="unwanted.*", lsuv_report=["plain.weight"])
    assert {row.name: row.note for row in handle} == {
        "embedding.weight": "an embedding",
        "plain.weight": "",
        "plain.bias": "a vector",
        "frozen.weight": "frozen",
        "tied.weight": "tied",
        "reparametrised.parametrizations.weight.original0": "a vector",
        "reparametrised.parametrizations.weight.original1": "parametrised: its own norm is not the weight's",
        "unknown.weight": "not the optimiser's",
        "zero.weight": "a norm of zero cannot be kept",
        "unwanted.weight": "excluded",
        "norm.weight": "of a norm",
        "head.weight": "last layer",
    }
    assert handle.pinned == ["plain.weight"]
    assert len(handle) == 12
    assert "plain.weight" in str(handle)
    with pytest.raises(KeyError):
        handle["nothing"]


def test_it_says_what_lsuv_never_scaled() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = ["0.weight", "5.weight"]
    for report in (names, SimpleNamespace(scaled=names)):
        with pytest.warns(UserWarning, match=r"never scaled by LSUV: 2\.weight$"):
            handle = pin(optimizer, model, lsuv_report=report)
        assert [row.name for row in handle if row.note == "never scaled by LSUV"] == ["2.weight"]
        handle.remove()
    assert "not known" in str(pin(optimizer, model))
    with pytest.raises(TypeError, match="lsuv_report: expected a report of lsuv_ or names"):
        pin(optimizer, model, lsuv_report=[1])


def test_a_removed_pin_leaves_nothing_behind() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plain = copy.deepcopy((model, optimizer))
    pin(optimizer, model).remove()
    assert optimizer.state_dict().keys() == plain[1].state_dict().keys()
    for each, its in ((model, optimizer), plain):
        gradients(each, 0)
        its.step()
    torch.testing.assert_close(model.state_dict(), plain[0].state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_resumes_on_the_same_path(kind: str, tmp_path: Any) -> None:
    model = network()
    optimizer = OPTIMIZERS[kind](model)
    pin(optimizer, model)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int) -> None:
        for step in range(first, first + 4):
            gradients(model, step)
            optimizer.step()

    train(model, optimizer, 0)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "saved")
    train(model, optimizer, 4)
    saved = torch.load(tmp_path / "saved", weights_only=True)
    other = network()
    resumed = OPTIMIZERS[kind](other)
    pin(resumed, other)
    other.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    train(other, resumed, 4)
    torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=0, atol=0)
    unpinned = OPTIMIZERS[kind](other)
    unpinned.load_state_dict(saved["optimizer"])  # the norms are in the way of nobody


def test_a_state_without_a_pin_or_with_another() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = optimizer.state_dict()
    pin(optimizer, model)
    with torch.no_grad():
        model[2].weight.mul_(3)
    norms = slow_norms(model[2].weight)
    with pytest.warns(UserWarning, match="saved without a pin"):
        optimizer.load_state_dict(state)
    gradients(model, 0)
    optimizer.step()
    assert slow_norms(model[2].weight) == pytest.approx(norms, rel=1e-6)
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    pin(other, model, by="matrix")
    with pytest.raises(ValueError, match=r"it has no norms for '0\.weight'"):
        other.load_state_dict(optimizer.state_dict())


def test_a_closure_that_the_optimizer_calls_often() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ELU(), nn.Linear(6, 1))
    x, y = torch.randn(32, 4), torch.randn(32, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    norms, losses = slow_norms(model[0].weight), []
    pin(optimizer, model)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(5):
        losses.append(optimizer.step(closure).item())
        assert slow_norms(model[0].weight) == pytest.approx(norms, rel=1e-6)
    assert losses[-1] < losses[0]


def test_a_gradient_scaler_that_skips_a_step() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = slow_norms(model[2].weight)
    pin(optimizer, model)
    scaler = torch.amp.GradScaler("cpu")
    for step, bad in enumerate((False, True, False)):
        before = model[2].weight.detach().clone()
        optimizer.zero_grad()
        x = torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(step))
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).square().mean() * (float("inf") if bad else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(model[2].weight, before) == bad
        assert slow_norms(model[2].weight) == pytest.approx(norms, rel=1e-6)


def test_a_fold_leaves_the_pin_with_weights_that_nobody_trains() -> None:
    model = nn.Sequential(nn.Linear(4, 6), bipolar.BELU(), nn.Linear(6, 6), bipolar.BELU(), nn.Linear(6, 2))
    x = torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pin(optimizer, model)
    plain = bipolar.fold(model, x, optimizer=optimizer)
    plain(x).sum().backward()
    with pytest.raises(RuntimeError, match="trains other parameters by now"):
        optimizer.step()


def test_an_optimizer_whose_groups_have_no_rate() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    pin(optimizer, model)
    for group in optimizer.param_groups:
        group["lr"] = None  # as of one that finds its steps itself
    for hook in optimizer._optimizer_step_post_hooks.values():
        hook(optimizer, (optimizer,), {})


def test_wrong_arguments_are_named() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="by: expected one of 'filter', 'matrix', got 'row'"):
        pin(optimizer, model, by="row")
    with pytest.raises(ValueError, match=r"exclude: 'x' matches none of the parameters 0\.weight"):
        pin(optimizer, model, exclude="x")
    with pytest.raises(ValueError, match="there is no weight to pin: weight: last layer"):
        pin(optimizer, nn.Linear(2, 2))
