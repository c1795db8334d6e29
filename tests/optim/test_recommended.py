"""The recommended optimiser, on networks with filters, with a stack, and with both; and in two processes."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import bipolar
from bipolar.optim import recommended
from tests.helpers.processes import in_two_ranks


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(42)
        return nn.Sequential(nn.Conv2d(3, 6, 3), nn.ELU(), nn.Flatten(), nn.Linear(96, 8), nn.ELU(), nn.Linear(8, 2))


def batch() -> Tensor:
    return torch.randn(16, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def train(model: nn.Module, x: Tensor) -> None:
    optimizer, _ = recommended(model, lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def train_a_part(rank: int, directory: Path) -> None:
    model = DistributedDataParallel(network())
    train(model, batch().chunk(2)[rank])
    torch.save(model.module.state_dict(), directory / str(rank))


def test_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    in_two_ranks(train_a_part, tmp_path)
    first, second = (torch.load(tmp_path / str(rank), weights_only=True) for rank in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    alone = network()
    train(alone, batch())
    torch.testing.assert_close(first, dict(alone.state_dict()), rtol=1e-3, atol=1e-4)


def test_filters_are_pinned_and_a_head_and_biases_are_not() -> None:
    model = network()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer, pinned = recommended(model, lr=0.1, adam_lr=0.01)
    assert [(group["method"], group["lr"]) for group in optimizer.param_groups] == [("muon", 0.1), ("adam", 0.01)]
    assert pinned is not None
    assert pinned.pinned == ["0.weight", "3.weight"]
    train(model, batch())
    for name, p in model.named_parameters():
        assert not torch.equal(p, before[name])
    torch.testing.assert_close(model[0].weight.flatten(1).norm(dim=1), before["0.weight"].flatten(1).norm(dim=1))


def test_gains_let_the_norms_move() -> None:
    model = network()
    before = model[0].weight.detach().flatten(1).norm(dim=1)
    optimizer, _ = recommended(model, lr=0.1, gain=0.2)
    model(batch()).square().sum().backward()
    optimizer.step()
    after = model[0].weight.detach().flatten(1).norm(dim=1)
    torch.testing.assert_close((after / before - 1).abs(), torch.full_like(after, 0.02), rtol=1e-3, atol=1e-5)


def test_a_recurrent_stack_is_not_pinned() -> None:
    optimizer, pinned = recommended(bipolar.models.CharRNN(5, 8, 4))
    assert pinned is None
    assert len(optimizer.param_groups[0]["params"]) == 8
    both = nn.ModuleDict({"input": nn.Linear(4, 8), "rnn": nn.LSTM(8, 8), "head": nn.Linear(8, 4)})
    _, pinned = recommended(both)
    assert pinned is not None
    assert pinned.pinned == ["input.weight"]
    assert pinned["rnn.weight_hh_l0"].note == "excluded"
