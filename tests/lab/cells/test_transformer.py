"""The transformer against its formulas, position by position, and its windows against the whole."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bipolar.lab.cells.protocol import Cell, Dice, State
from bipolar.lab.cells.transformer import Transformer
from tests.lab.cells.noise import check_rate
from tests.lab.cells.twins import BATCH, INPUT, check_copying, check_gradients, check_twin, check_windows

WIDTH, HEADS = 8, 2


def made(context: int, layers: int = 2, dropout: float = 0.0) -> Transformer:
    """With weights large enough for attention that is far from even."""
    network = Transformer(INPUT, WIDTH, layers=layers, heads=HEADS, context=context, dropout=dropout)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return network


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean() + 1e-6).sqrt() * weight


def formula(network: Transformer, x: Tensor, state: State, noise: list[Tensor] | None = None) -> tuple[Tensor, State]:
    """One position of one sequence; the turn of a key against a query is a product of complex numbers."""
    context = network.context
    x = network.input.weight @ x + network.input.bias
    there = torch.cat((state[-1], torch.ones(1, dtype=x.dtype)))
    parts = []
    for layer, block in enumerate(network.blocks):
        q, k, v = (w @ rms(x, block.norm1.weight) for w in block.qkv.weight.split(WIDTH))
        keys = torch.cat((state[2 * layer].view(context, WIDTH), k[None]))
        values = torch.cat((state[2 * layer + 1].view(context, WIDTH), v[None]))
        found = []
        for head in range(HEADS):
            at = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            pairs = WIDTH // HEADS // 2
            query = torch.complex(q[at][:pairs], q[at][pairs:])
            scores = []
            for position in range(context + 1):
                key = torch.complex(keys[position, at][:pairs], keys[position, at][pairs:])
                distance = context - position
                angles = torch.tensor([distance / 10_000 ** (j / pairs) for j in range(pairs)], dtype=torch.float64)
                turn = torch.polar(torch.ones(pairs, dtype=torch.float64), angles)
                score = (query * turn * key.conj()).real.sum() / (WIDTH / HEADS) ** 0.5
                scores.append(score if float(there[position]) > 0 else torch.tensor(-torch.inf, dtype=x.dtype))
            found.append(torch.stack(scores).softmax(0) @ values[:, at])
        branch = block.merge.weight @ torch.cat(found)
        x = x + (branch if noise is None else branch * noise[2 * layer])
        branch = block.narrow.weight @ functional.gelu(block.widen.weight @ rms(x, block.norm2.weight))
        x = x + (branch if noise is None else branch * noise[2 * layer + 1])
        parts += [keys[1:].flatten(), values[1:].flatten()]
    return rms(x, network.norm.weight), (*parts, there[1:])


@pytest.mark.parametrize("context", [1, 3, 9])
def test_formula(context: int) -> None:
    network = made(context)
    check_twin(network, lambda x, state: formula(network, x, state))
    check_windows(network)


def test_gradients() -> None:
    check_gradients(Transformer(2, 4, layers=1, heads=2, context=2))


@pytest.mark.parametrize("lengths", [(1,) * 12, (5, 7), (2, 9, 1)])
def test_many_windows(lengths: tuple[int, ...]) -> None:
    """Windows shorter and longer than the context, and single steps, are the sequence in one."""
    network = made(context=4, layers=3).double()
    x = torch.randn(12, BATCH, INPUT, dtype=torch.float64)
    whole, end = network(x)
    state, outputs = None, []
    for window in x.split(lengths):
        output, state = network(window, state)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs), whole)
    torch.testing.assert_close(state, end)
    by_steps, last = Cell.forward(network, x)
    torch.testing.assert_close(by_steps, whole)
    torch.testing.assert_close(last, end)


@pytest.mark.parametrize("layers", [1, 2])
def test_the_band(layers: int) -> None:
    """An output depends on its own input and on those of the context before, times the layers, and on no others."""
    network = made(context=3, layers=layers)
    x = torch.randn(12, 1, INPUT, requires_grad=True)
    network(x)[0][10].sum().backward()
    reached = [t for t in range(12) if bool(x.grad[t].any())]
    assert reached == list(range(10 - 3 * layers, 11))


def test_the_state_and_its_gradient() -> None:
    network = made(context=3)
    x = torch.randn(4, BATCH, INPUT, requires_grad=True)
    y = torch.randn(2, BATCH, INPUT)
    _, state = network(x)
    for carried, flows in ((state.detach(), False), (state, True)):
        (gradient,) = torch.autograd.grad(network(y, carried)[0].sum(), x, allow_unused=True, materialize_grads=True)
        assert bool(gradient.any()) == flows


def test_the_beginning() -> None:
    """A state of zeros is no state: nothing attends to positions that were not there."""
    network = made(context=5)
    x = torch.randn(4, BATCH, INPUT)
    zeros = torch.cat(network.begin(BATCH, x), dim=-1)[None]
    for with_state, without in zip(network(x, zeros), network(x), strict=True):
        torch.testing.assert_close(with_state, without)


def test_dropout() -> None:
    """Each branch and step has its own mask; in evaluation there is none."""
    network = made(context=3, dropout=0.3).double()
    x = torch.randn(5, BATCH, INPUT, dtype=torch.float64)
    output, _ = network(x, generator=torch.Generator().manual_seed(3))
    source = torch.Generator().manual_seed(3)
    masks = [(torch.rand(5, BATCH, WIDTH, generator=source) >= 0.3) / 0.7 for _ in range(4)]
    for b in range(BATCH):
        state: State = tuple(x.new_zeros(size) for size in network.sizes)
        for t in range(5):
            y, state = formula(network, x[t, b], state, [mask[t, b] for mask in masks])
            torch.testing.assert_close(output[t, b], y)
    plain = made(context=3).double()
    plain.load_state_dict(network.state_dict())
    assert torch.equal(network.eval()(x)[0], plain(x)[0])


def test_masks() -> None:
    network = Transformer(INPUT, 40, dropout=0.2)
    drawn = network.draw(30, 10, Dice(torch.Generator().manual_seed(0), torch.empty(0)))
    assert drawn.once == ()
    assert len(drawn.each) == 8
    kept = (torch.stack(drawn.each) * 0.8).round()
    check_rate(kept, 0.2)
    check_rate((kept[:, 1:] == kept[:, :-1]).float(), 2 * 0.2 * 0.8)  # neighbours in time are independent
    check_rate((kept[1:] == kept[:-1]).float(), 2 * 0.2 * 0.8)  # and so are branches


def test_parameters() -> None:
    count = sum(p.numel() for p in Transformer(INPUT, WIDTH, layers=3).parameters())
    assert count == WIDTH * (INPUT + 1) + 3 * (12 * WIDTH**2 + 2 * WIDTH) + WIDTH


def test_arguments() -> None:
    with pytest.raises(ValueError, match="hidden_size: expected a multiple of 8, twice the number of heads, got 12"):
        Transformer(INPUT, 12, heads=4)
    with pytest.raises(ValueError, match="context: expected a whole number of at least 1, got 0"):
        Transformer(INPUT, WIDTH, context=0)
    with pytest.raises(ValueError, match=r"dropout: expected a rate .*, got 1\.0"):
        Transformer(INPUT, WIDTH, dropout=1.0)


def test_copying() -> None:
    check_copying(Transformer(4, 16, layers=1, heads=2, context=4), steps=80)
