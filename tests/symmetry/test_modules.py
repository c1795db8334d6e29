"""Sign rules of modules that are followed as a whole: recurrent stacks, torch's own, and registered ones."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import bipolar
from bipolar._symmetry.recording import Recording
from bipolar._symmetry.rules import modules
from tests.helpers.folding import BATCH, Recurrent, assert_folds


def test_states_of_a_stack() -> None:
    x, state = torch.randn(3, 2, 4), torch.randn(4, 2, 8)
    kept = Recurrent(lambda n, x, h: n.out(n.rnn(n.up(x), h)[0]))  # it takes a state, but gives none
    assert not assert_folds(kept, (x, state * 0), (x, state)).holds
    encoder = Recurrent(lambda n, x: n.rnn(n.up(x))[1])  # its state is what it is for
    assert not assert_folds(encoder, x).holds
    learned = Recurrent(lambda n, x: n.out(n.rnn(n.up(x), n.start.expand(4, 2, 8).contiguous())[0]))
    assert assert_folds(learned, x).holds
    carried = Recurrent(lambda n, x, h: (n.out(n.rnn(n.up(x), h)[0]), n.rnn(n.up(x), h)[1]))
    assert "flipped signs" in bipolar.symmetry(carried, (x, state)).summary()


def packing(network: Recurrent, x: Tensor, lengths: Tensor, value: float) -> Tensor:
    packed = pack_padded_sequence(network.up(x), lengths, enforce_sorted=False)
    out: Tensor = network.out(pad_packed_sequence(network.rnn(packed)[0], padding_value=value)[0])
    return out


def test_lengths_resets_and_packing() -> None:
    x, other = torch.randn(5, 3, 4), torch.randn(5, 3, 4)
    lengths, others = torch.tensor([2, 5, 3]), torch.tensor([5, 1, 4])
    reset = torch.arange(15).view(5, 3) % 4 == 0
    padded = Recurrent(lambda n, x, lengths: n.out(n.rnn(n.up(x), lengths=lengths)[1]))
    assert assert_folds(padded, (x, lengths), (other, others)).holds
    episodes = Recurrent(lambda n, x, reset: n.out(n.rnn(n.up(x), reset=reset)[0]))
    assert assert_folds(episodes, (x, reset), (other, ~reset)).holds
    packed = Recurrent(lambda n, x, lengths: packing(n, x, lengths, 0.0))
    assert assert_folds(packed, (x, lengths), (other, others)).holds
    filled = Recurrent(lambda n, x, lengths: packing(n, x, lengths, 1.0))  # a value that does not flip
    assert not assert_folds(filled, (x, lengths), (other, others)).holds

    def decide(network: Recurrent, x: Tensor) -> Tensor:
        below = network.up(x)
        out: Tensor = network.out(network.rnn(below, reset=below[..., 0] > 0)[0])
        return out

    assert_folds(Recurrent(decide), x, other)


class Between(nn.Module):
    """Takes the last state of a stack, and feeds a second stack that shares its weights."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.up = nn.Linear(3, 8)
        self.first = bipolar.StackedRNN(8, 8, 4, "brelu")
        self.second = self.first if shared else bipolar.StackedRNN(8, 8, 4, "brelu", pattern="halves")
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x, state = self.first(self.up(x))
        x, _ = self.second(x, state)
        out: Tensor = self.head(x + state[-1])
        return out


def test_stacks_that_meet() -> None:
    x = torch.randn(5, 2, 3)
    shared = Between(shared=True)
    plain = bipolar.fold(shared, x, strict=True)
    assert torch.equal(plain(x), shared(x))
    different = Between(shared=False)
    assert torch.equal(bipolar.fold(different, x)(x), different(x))
    assert "another pattern" in bipolar.symmetry(different, x).summary()


@pytest.mark.parametrize(
    "build",
    [lambda: nn.LSTM(4, 4), lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 1, None, False)],
    ids=["LSTM", "TransformerEncoder"],
)
def test_what_torch_computes_as_a_whole_is_left_alone(build: Callable[[], nn.Module]) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), build()), torch.randn(3, 2, 4)
    converted = bipolar.convert(model, example=x)
    left = converted.conversion_report.left
    assert len(left) == 1
    assert left[0].note == "it has activations of its own"
    report = bipolar.symmetry(converted, x)
    assert not report.holds
    assert "has activations of its own" in report.activations["1"]


class Same(nn.Module):
    """The identity, by functions that do not keep signs."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(x, -x) * x.sign()


class StillSame(Same):
    pass


@pytest.mark.parametrize("kind", [Same, StillSame])
def test_a_module_registers_its_own_rule(kind: type[Same], monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(), kind(), nn.Linear(8, 2))
    assert "it takes a maximum" in bipolar.symmetry(model, BATCH).summary()
    monkeypatch.setattr(modules, "_MODULE_RULES", dict(modules._MODULE_RULES))

    @modules.sign_rule(Same)
    def keep(recording: Recording, module: Same, given: Sequence[Tensor], output: Tensor) -> None:
        recording.give(output, recording.of(given[0]))

    assert assert_folds(model, BATCH).holds
