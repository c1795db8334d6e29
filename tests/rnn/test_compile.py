"""Stacks within ``torch.compile``: what is compiled, how often, and with what result."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import bipolar
from tests.helpers.stacks import NOISE, gradients

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # from within torch, at a graph break

LAYERS = 4
#: Time steps and batches, none of them as large as another dimension: the compiler would take the two for one.
SHAPES = [(5, 3), (7, 3), (6, 4), (9, 2), (4, 6), (8, 5)]


class Model(nn.Module):
    """A stack between two layers, which are the parts that can be compiled."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(10, 16), nn.Linear(16, 2)
        self.rnn = bipolar.StackedRNN(16, 16, LAYERS, skip_every=2, **options)

    def forward(self, x: Tensor, **given: Any) -> tuple[Tensor, Tensor]:
        output, state = self.rnn(self.encoder(x), **given)
        decoded: Tensor = self.decoder(output)
        return decoded, state


class Counter:
    """A backend of ``torch.compile`` that counts its graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        self.graphs += 1
        return graph.forward


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def given_to(kind: str, steps: int, batch: int) -> dict[str, Any]:
    if kind == "state":
        return {"state": torch.randn(LAYERS, batch, 16)}
    if kind == "lengths":
        return {"lengths": torch.randint(1, steps + 1, (batch,))}
    return {"reset": torch.rand(steps, batch) < 0.2} if kind == "reset" else {}


@pytest.mark.parametrize("kind", ["plain", "dropout", "state", "lengths", "reset"])
def test_other_lengths_and_batches_are_not_compiled_again(kind: str) -> None:
    """Two graphs, before the stack and after: for the first shape, for any length, and for any length and batch."""
    model, counter = Model(**(NOISE if kind == "dropout" else {})), Counter()
    compiled = torch.compile(model, backend=counter)
    graphs = []
    for steps, batch in SHAPES:
        x, given = torch.randn(steps, batch, 10), given_to(kind, steps, batch)
        results = []
        for run in (model, compiled):
            model.zero_grad()
            torch.manual_seed(1)
            output, state = run(x, **given)
            (output.sum() + state.sum()).backward()
            results.append([output, state, *(p.grad for p in model.parameters())])
        torch.testing.assert_close(results[0], results[1])
        graphs.append(counter.graphs)
    assert graphs == [2, 4, 6, 6, 6, 6]


def test_other_lengths_and_batches_of_a_dynamic_model_are_not_compiled_at_all() -> None:
    model, counter = Model(), Counter()
    compiled = torch.compile(model, backend=counter, dynamic=True)
    for steps, batch in SHAPES:
        compiled(torch.randn(steps, batch, 10))
    assert counter.graphs == 2


def test_nothing_of_a_stack_alone_is_compiled() -> None:
    rnn, counter = bipolar.StackedRNN(10, 16, LAYERS), Counter()
    compiled = torch.compile(rnn, backend=counter)
    for steps, batch in SHAPES:
        lengths = torch.randint(1, steps + 1, (batch,))
        x = pack_padded_sequence(torch.randn(steps, batch, 10), lengths, enforce_sorted=False)
        torch.testing.assert_close(compiled(x)[0].data, rnn(x)[0].data)
    assert counter.graphs == 0


def test_the_reference_is_one_graph() -> None:
    model, counter, x = Model(backend="reference"), Counter(), torch.randn(5, 3, 10)
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    compiled(x)[0].sum().backward()
    found = [grad.clone() for grad in gradients(model.rnn)]
    model.zero_grad()
    model(x)[0].sum().backward()
    torch.testing.assert_close(found, gradients(model.rnn))
    assert counter.graphs == 1


def test_the_reference_is_one_graph_with_dropout_and_lengths() -> None:
    rnn = bipolar.StackedRNN(4, 4, 4, backend="reference", **NOISE)
    compiled = torch.compile(rnn, backend="eager", fullgraph=True)
    x, lengths = torch.randn(5, 3, 4), torch.tensor([5, 2, 3])
    assert not torch.equal(compiled(x, lengths=lengths)[0], compiled(x, lengths=lengths)[0])
    rnn.eval()
    torch.testing.assert_close(compiled(x, lengths=lengths), rnn(x, lengths=lengths))


def test_blocks_are_dropped_by_a_graph_and_by_a_transform_too() -> None:
    """Each block at half of the time steps, where it hands up its input: without noise but that, whole ones."""
    rnn, x = bipolar.StackedRNN(4, 4, 4, skip_every=4, backend="reference", block_dropout=0.5), torch.randn(40, 1, 4)
    compiled = torch.compile(rnn, backend="eager", fullgraph=True)
    passed = (compiled(x)[0] == x).all(2).sum()
    assert 5 < passed < 35  # all but one in a million draws
    torch.export.export(rnn, (x,))
    several = torch.vmap(lambda each: rnn(each)[0], randomness="different")(x.expand(3, -1, -1, -1))
    dropped = (several == x).all(3).squeeze(2)
    assert not torch.equal(dropped[0], dropped[1])


def test_a_graph_checks_lengths_as_it_runs() -> None:
    rnn, x = bipolar.StackedRNN(4, 4, 4, backend="reference"), torch.randn(5, 3, 4)
    compiled = torch.compile(rnn, backend="eager", fullgraph=True)
    for bad in ([6, 1, 1], [5, 0, 1]):
        with pytest.raises(RuntimeError, match="lengths: expected 1 to the time steps of the input"):
            compiled(x, lengths=torch.tensor(bad))


def test_strict_export() -> None:
    rnn, x = bipolar.StackedRNN(10, 16, LAYERS).eval(), torch.randn(5, 3, 10)
    exported = torch.export.export(rnn, (x,), strict=True).module()
    torch.testing.assert_close(exported(x)[0], rnn(x)[0], rtol=1e-5, atol=1e-5)
