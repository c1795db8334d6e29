"""Checks that every cell passes: against a twin from the formulas, in windows, by gradcheck, and on copying."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bipolar.lab.cells.protocol import Cell, State

#: A step in plain formulas, for one sequence: from input (input_size) and the parts of the state to output and state.
Twin = Callable[[Tensor, State], tuple[Tensor, State]]

INPUT, HIDDEN, BATCH, STEPS = 3, 4, 2, 5


def check_twin(cell: Cell, twin: Twin) -> None:
    """A cell in float64 equals its twin, one step and a sequence, from a state that is carried."""
    cell = cell.double().eval()
    x = torch.randn(STEPS, BATCH, cell.input_size, dtype=torch.float64)
    state = 0.5 * torch.randn(1, BATCH, sum(cell.sizes), dtype=torch.float64)
    output, last = cell(x, state)
    for b in range(BATCH):
        parts = tuple(state[0, b].split(cell.sizes))
        for t in range(STEPS):
            y, parts = twin(x[t, b], parts)
            torch.testing.assert_close(output[t, b], y)
        torch.testing.assert_close(last[0, b], torch.cat(parts))


def check_windows(cell: Cell) -> None:
    """A sequence in two windows, the state carried, is the sequence in one; without a state it begins by itself."""
    cell = cell.double().eval()
    x = torch.randn(STEPS, BATCH, cell.input_size, dtype=torch.float64)
    whole, end = cell(x)
    first, state = cell(x[:2])
    second, last = cell(x[2:], state)
    torch.testing.assert_close(torch.cat((first, second)), whole)
    torch.testing.assert_close(last, end)


def check_gradients(cell: Cell, *, training: bool = False) -> None:
    """The gradients of all parameters, the input and the state are those of finite differences."""
    cell = cell.double().train(training)
    x = torch.randn(STEPS, BATCH, cell.input_size, dtype=torch.float64, requires_grad=True)
    state = (0.5 * torch.randn(1, BATCH, sum(cell.sizes), dtype=torch.float64)).requires_grad_()
    names = [name for name, _ in cell.named_parameters()]

    def run(x: Tensor, state: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        noise = {"generator": torch.Generator().manual_seed(1)}  # the same in every call
        own = dict(zip(names, values, strict=True))
        found: tuple[Tensor, ...] = torch.func.functional_call(cell, own, (x, state), noise)
        return found

    values = [p.detach().clone().requires_grad_() for p in cell.parameters()]
    assert torch.autograd.gradcheck(run, (x, state, *values))


def check_copying(cell: Cell, steps: int = 300, rate: float = 0.01) -> None:
    """The cell learns to say again what it heard two steps ago, far better than a guess."""
    torch.manual_seed(0)
    symbols, delay = cell.input_size, 2
    decoder = nn.Linear(cell.hidden_size, symbols)
    optimizer = torch.optim.Adam([*cell.parameters(), *decoder.parameters()], rate)
    cell.train()
    loss = torch.tensor(torch.inf)
    for _ in range(steps):
        tokens = torch.randint(symbols, (12, 16))
        output, _ = cell(nn.functional.one_hot(tokens, symbols).float())
        loss = nn.functional.cross_entropy(decoder(output[delay:]).flatten(0, 1), tokens[:-delay].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(cell.parameters(), 1.0)
        optimizer.step()
    assert float(loss.detach()) < 0.5 * math.log(symbols)
