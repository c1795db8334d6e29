"""Path-SGD against sums over every path of a small network, unrolled, and by what scaling must not change."""

import copy
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from bipolar.lab.cells.path_norm import PathSGD, path_factors
from bipolar.lab.cells.vanilla import Vanilla

INPUTS, HIDDEN, OUTPUTS, STEPS = 2, 3, 2, 3

Weight = tuple[str, tuple[int, ...]]


class Network(nn.Module):
    """Layers of ReLUs and a linear decoder."""

    def __init__(self, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Vanilla(HIDDEN if layer else INPUTS, HIDDEN, "relu") for layer in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.decoder = nn.Linear(HIDDEN, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x, _ = layer(self.dropout(x))
        return self.decoder(x)


def paths(layers: int) -> Iterator[list[Weight]]:
    """The weights along each path, from an input or a bias to an output, at whatever steps."""

    def onward(layer: int, t: int, unit: int) -> Iterator[list[Weight]]:
        """The weights on the ways from a hidden unit to the outputs."""
        if t + 1 < STEPS:
            for other in range(HIDDEN):
                for rest in onward(layer, t + 1, other):
                    yield [(f"layers.{layer}.recurrent", (other, unit)), *rest]
        if layer + 1 < layers:
            for other in range(HIDDEN):
                for rest in onward(layer + 1, t, other):
                    yield [(f"layers.{layer + 1}.input.weight", (other, unit)), *rest]
        else:
            for output in range(OUTPUTS):
                yield [("decoder.weight", (output, unit))]

    for t in range(STEPS):
        for output in range(OUTPUTS):
            yield [("decoder.bias", (output,))]
        for unit in range(HIDDEN):
            for layer in range(layers):
                for rest in onward(layer, t, unit):
                    yield [(f"layers.{layer}.input.bias", (unit,)), *rest]
            for source in range(INPUTS):
                for rest in onward(0, t, unit):
                    yield [("layers.0.input.weight", (unit, source)), *rest]


@pytest.mark.parametrize("layers", [1, 2])
def test_factors_are_sums_over_paths(layers: int) -> None:
    network = Network(layers, dropout=0.5).double()
    weights = {name: p.detach() for name, p in network.named_parameters()}
    expected = {name: torch.zeros_like(p) for name, p in weights.items()}
    for path in paths(layers):
        squares = [float(weights[name][index]) ** 2 for name, index in path]
        for place, (name, index) in enumerate(path):
            expected[name][index] += math.prod(squares[:place] + squares[place + 1 :])
    found = path_factors(network, torch.empty(STEPS, 1, INPUTS, dtype=torch.float64))
    assert network.training
    assert found.keys() == expected.keys()
    for name, factors in found.items():
        torch.testing.assert_close(factors, expected[name])


def test_the_first_output_of_a_cell() -> None:
    """A cell alone returns a state too; its paths end at its units, which have a weight of 1 to the outside."""
    cell, network = Vanilla(INPUTS, HIDDEN, "relu"), Network(1)
    network.layers[0] = cell
    network.decoder = nn.Linear(HIDDEN, HIDDEN, bias=False)
    nn.init.eye_(network.decoder.weight)
    like = torch.empty(STEPS, 1, INPUTS)
    found, expected = path_factors(cell, like), path_factors(network, like)
    for name, factors in found.items():
        torch.testing.assert_close(factors, expected[f"layers.0.{name}"])


def loss_of(network: Network) -> Tensor:
    x = torch.randn(STEPS, 8, INPUTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (network(x) - x.cumsum(dim=0)).square().mean()


def step(network: Network, lr: float = 0.1, **options: bool) -> PathSGD:
    optimizer = PathSGD(network, torch.empty(STEPS, 1, INPUTS, dtype=torch.float64), lr, **options)
    network.zero_grad()
    loss_of(network).backward()
    optimizer.step()
    return optimizer


def test_the_step() -> None:
    network = Network(2).double()
    before = copy.deepcopy(network)
    step(network, lr=0.3)
    loss_of(before).backward()
    factors = path_factors(before, torch.empty(STEPS, 1, INPUTS, dtype=torch.float64))
    for (name, old), new in zip(before.named_parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(new, old - 0.3 * old.grad / factors[name])


def test_scaling_of_units_changes_nothing() -> None:
    """Units scaled, and what they send scaled back: the same function before the step, and the same after it."""
    network = Network(2).double()
    scaled = copy.deepcopy(network)
    below: Tensor | float = 1.0
    with torch.no_grad():
        for layer in scaled.layers:
            own = torch.rand(HIDDEN, dtype=torch.float64) * 4 + 0.2
            layer.input.weight.mul_(own.unsqueeze(1)).div_(below)
            layer.input.bias.mul_(own)
            layer.recurrent.mul_(own.unsqueeze(1)).div_(own)
            below = own
        scaled.decoder.weight.div_(below)
    torch.testing.assert_close(loss_of(scaled), loss_of(network))
    step(network)
    step(scaled)
    torch.testing.assert_close(loss_of(scaled), loss_of(network))
    x = torch.randn(STEPS, 4, INPUTS, dtype=torch.float64)
    torch.testing.assert_close(scaled(x), network(x))
    assert not torch.allclose(scaled.decoder.weight, network.decoder.weight)


def test_a_matched_step_is_as_long_as_that_of_sgd() -> None:
    network = Network(1).double()
    before, lr = copy.deepcopy(network), 0.01
    optimizer = step(network, lr, match=True)
    moved = [new - old for new, old in zip(network.parameters(), before.parameters(), strict=True)]
    expected = lr * nn.utils.get_total_norm([p.grad for p in network.parameters() if p.grad is not None])
    torch.testing.assert_close(nn.utils.get_total_norm(moved), expected)
    scale = optimizer.param_groups[0]["scale"]
    loss_of(network).backward()
    optimizer.step()
    assert optimizer.param_groups[0]["scale"] == scale


def test_a_weight_on_no_path_stays() -> None:
    """A sequence of one step leads through no recurrent weight."""
    cell = Vanilla(INPUTS, HIDDEN, "relu")
    before = cell.recurrent.detach().clone()
    optimizer = PathSGD(cell, torch.empty(1, 1, INPUTS), lr=0.1)
    cell(torch.randn(1, 4, INPUTS), torch.ones(1, 4, HIDDEN))[0].square().sum().backward()
    assert cell.recurrent.grad.any()
    optimizer.step()
    assert torch.equal(cell.recurrent, before)


def test_a_closure() -> None:
    network = Network(1).double()

    def closure() -> Tensor:
        network.zero_grad()
        loss = loss_of(network)
        loss.backward()
        return loss

    expected = loss_of(network)
    optimizer = PathSGD(network, torch.empty(STEPS, 1, INPUTS, dtype=torch.float64), lr=0.01)
    torch.testing.assert_close(optimizer.step(closure), expected)
    assert loss_of(network) != expected


def test_learning() -> None:
    network = Network(1).double()
    start = float(loss_of(network).detach())
    optimizer = PathSGD(network, torch.empty(STEPS, 1, INPUTS, dtype=torch.float64), lr=0.1, match=True)
    for _ in range(200):
        optimizer.zero_grad()
        loss_of(network).backward()
        optimizer.step()
    assert float(loss_of(network).detach()) < 0.25 * start


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="lr: expected a number that is not negative, got -1"):
        PathSGD(Network(1), torch.empty(STEPS, 1, INPUTS), lr=-1)
