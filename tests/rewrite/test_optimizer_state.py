"""State of optimisers across folding: training continues as if nothing had happened."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from tests.helpers.folding import BATCH
from tests.helpers.networks import Residual, head

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-2, momentum=0.9, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "adamax": lambda p: torch.optim.Adamax(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "radam": lambda p: torch.optim.RAdam(p),
    "rprop": lambda p: torch.optim.Rprop(p),
    "asgd": lambda p: torch.optim.ASGD(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_as_if_nothing_had_happened(name: str) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        Residual(bipolar.BReLU(), nn.Dropout(0.2), nn.Conv2d(6, 6, 3, padding=1)),
        bipolar.BReLU(),
        *head(6),
    ).double()
    x, labels = torch.randn(8, 4, 1, 5, 5, dtype=torch.float64), torch.randint(4, (8, 4))

    def train(network: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
        losses = []
        for step in steps:
            torch.manual_seed(step)
            optimizer.zero_grad()
            loss = tF.cross_entropy(network(x[step]), labels[step])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer, range(4))
    twin, other = copy.deepcopy((model, optimizer))
    alone = train(twin, other, range(4, 8))
    plain = bipolar.fold(model, x[0], strict=True, optimizer=optimizer)
    assert train(plain, optimizer, range(4, 8)) == alone
    again = bipolar.unfold(plain, x[0], strict=True, optimizer=optimizer)
    assert train(again, optimizer, range(4)) == train(twin, other, range(4))


def test_optimizer_of_a_stack() -> None:
    rnn = bipolar.StackedRNN(4, 6, 4, "brelu").double()
    optimizer = torch.optim.Adam(rnn.parameters())
    x = torch.randn(3, 2, 4, dtype=torch.float64)

    def step(network: nn.Module, optimizer: torch.optim.Optimizer) -> float:
        optimizer.zero_grad()
        loss: Tensor = network(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    step(rnn, optimizer)
    twin, other = copy.deepcopy((rnn, optimizer))
    plain = bipolar.fold(rnn, optimizer=optimizer)
    assert [step(plain, optimizer) for _ in range(3)] == [step(twin, other) for _ in range(3)]


def test_an_optimizer_that_is_not_known_is_refused() -> None:
    class Strange(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["third_moment"] = torch.ones_like(p)

    model = nn.Sequential(nn.Linear(4, 6), bipolar.BReLU(), nn.Linear(6, 2))
    optimizer = Strange(model.parameters(), lr=0.1)
    optimizer.step()
    with pytest.raises(ValueError, match="optimizer: whether 'third_moment' of Strange changes its sign"):
        bipolar.fold(model, optimizer=optimizer)
    stranger = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    with pytest.raises(ValueError, match="optimizer: it has parameters that are not the model's"):
        bipolar.fold(model, optimizer=stranger)


def test_optimizers_that_keep_more() -> None:
    model = nn.Sequential(nn.Linear(4, 6), bipolar.Bipolar(nn.PReLU()), nn.Linear(6, 2)).double()
    optimizer = torch.optim.Adam(model.parameters())
    model(BATCH.double()).square().mean().backward()
    optimizer.step()
    plain = bipolar.fold(model, BATCH.double(), optimizer=optimizer)
    assert {id(p) for p in plain.parameters()} == {id(p) for p in optimizer.param_groups[0]["params"]}
    with pytest.raises(ValueError, match="optimizer: the history of LBFGS"):
        bipolar.fold(plain, BATCH.double(), optimizer=torch.optim.LBFGS(plain.parameters()))
