"""The three kinds of dropout."""

from typing import Any

import pytest
import torch
from torch import nn

import bipolar
from tests.helpers.stacks import NOISE, RARE


@pytest.mark.parametrize("backend", ["reference", "wavefront"])
def test_a_generator_repeats_a_pass_and_evaluation_is_deterministic(backend: Any) -> None:
    rnn, x = bipolar.StackedRNN(8, 8, 9, backend=backend, **NOISE), torch.randn(6, 3, 8)
    one, two, other = (rnn(x, generator=torch.Generator().manual_seed(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    rnn.eval()
    assert torch.equal(rnn(x)[0], rnn(x)[0])


def test_a_dropped_block_is_the_identity_and_its_states_stay() -> None:
    rnn = bipolar.StackedRNN(4, 4, 6, skip_every=2, block_dropout=0.5)
    x, start = torch.randn(1, 3, 4), torch.randn(6, 3, 4)
    for seed in range(20):
        output, state = rnn(x, start, generator=torch.Generator().manual_seed(seed))
        stayed = [torch.equal(state[i], start[i]) for i in range(6)]
        assert stayed[0::2] == stayed[1::2]  # a block is dropped as a whole
        if all(stayed):
            torch.testing.assert_close(output, x)
            return
    raise AssertionError("twenty passes without all three blocks dropped have a probability of 0.07")


def test_rnn_drop_has_one_mask_for_a_sequence() -> None:
    rnn = bipolar.StackedRNN(1, 50, 1, "identity", skip_every=None, recurrent_dropout=0.5, bias=False)
    nn.init.zeros_(rnn.weight_ih_l0)
    nn.init.eye_(rnn.weight_hh_l0)
    output, _ = rnn(torch.zeros(3, 1, 1), torch.ones(1, 1, 50))
    assert set(output[0].flatten().tolist()) == {0.0, 2.0}
    torch.testing.assert_close(output[2], output[0] ** 3)  # the same units every time


@pytest.mark.parametrize("rates", [NOISE, RARE], ids=["masks", "gaps"])
@pytest.mark.parametrize("backend", ["reference", "scan", "wavefront"])
def test_a_state_may_lie_in_memory_with_the_batch_last(backend: Any, rates: dict[str, float]) -> None:
    rnn, x = bipolar.StackedRNN(4, 4, 4, backend=backend, **rates), torch.randn(5, 3, 4)
    state = torch.randn(4, 4, 3).transpose(1, 2)
    found, expected = (rnn(x, h, generator=torch.Generator().manual_seed(1)) for h in (state, state.contiguous()))
    torch.testing.assert_close(found, expected)


def test_dropout_acts_on_input_and_every_output() -> None:
    rnn = bipolar.StackedRNN(200, 200, 1, "identity", skip_every=1, skip_scale=1.0, dropout=0.5, bias=False)
    for parameter in rnn.parameters():
        nn.init.zeros_(parameter)
    output, state = rnn(torch.ones(1, 1, 200))
    assert set(state.flatten().tolist()) == {0.0, 2.0}  # what the skip carries is dropped out
    assert set(output.flatten().tolist()) == {0.0, 4.0}


def test_a_block_that_is_always_dropped_has_a_gradient_of_zero() -> None:
    for backend in ("reference", "scan", "wavefront"):
        rnn = bipolar.StackedRNN(4, 4, 8, block_dropout=0.9, backend=backend)
        for seed in range(5):
            rnn.zero_grad()
            rnn(torch.randn(1, 2, 4), generator=torch.Generator().manual_seed(seed))[0].sum().backward()
            assert all(p.grad is not None for p in rnn.parameters())
