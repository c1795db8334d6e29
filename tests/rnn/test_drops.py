"""Values that fall to dropout: their distribution, and the two ways to hold them."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bipolar._rnn.drops import RARE, Dice, Drops, joined, scale_of
from bipolar._rnn.noise import draw_noise, dropped_out

#: The chance that a sound generator fails one of the comparisons below: beyond five standard deviations.
SIGMAS = 5.0
#: How far apart two values are that must not know of each other; four of a mask share a random number.
LAGS = (1, 2, 3, 4, 7, 16, 37, 64)


def mask_of(drops: Drops, *shape: int) -> Tensor:
    """True where a value is dropped, (rows, ...)."""
    return drops.zeroed(torch.ones(shape)) == 0


def dice(seed: int) -> Dice:
    return Dice(torch.Generator().manual_seed(seed), torch.device("cpu"))


def assert_share(fallen: Tensor, p: float) -> None:
    """The share of dropped values is p, within five standard deviations."""
    count = fallen.numel()
    assert abs(float(fallen.double().mean()) - p) < SIGMAS * math.sqrt(p * (1 - p) / count)


def assert_independent(fallen: Tensor, p: float) -> None:
    """Every value falls with probability p, whatever others near and far do."""
    assert_share(fallen, p)
    for dim in range(fallen.ndim):
        size = fallen.size(dim)
        for lag in LAGS:  # two fall together as often as chance has it
            if lag < size:
                assert_share(fallen.narrow(dim, lag, size - lag) & fallen.narrow(dim, 0, size - lag), p * p)
        for slab in fallen.unbind(dim):  # none is special
            assert_share(slab, p)


@pytest.mark.parametrize("p", [0.02, RARE, 0.3, 0.9])
def test_states_and_blocks_fall_independently(p: float) -> None:
    layers, time, batch, units, blocks = 12, 4000, 16, 128, 3
    rates = {"dropout": 0.0, "recurrent_dropout": p, "block_dropout": p}
    noise = draw_noise(torch.empty(time, batch, 1), layers, units, blocks, dice(6), **rates)
    assert noise.recurrent is not None
    assert_independent(mask_of(noise.recurrent, layers, batch, units), p)
    assert noise.dropped is not None
    assert_share(noise.dropped, p)
    assert_share(noise.dropped[1:] & noise.dropped[:-1], p * p)
    assert_share(noise.dropped[:, 1:] & noise.dropped[:, :-1], p * p)


@pytest.mark.parametrize("p", [0.001, 0.01, 0.05, RARE, 0.25, 0.5, 0.9])
def test_values_fall_independently_across_time_layers_and_batch(p: float) -> None:
    layers, time, batch, units = 6, 40, 16, 128
    rates = {"dropout": p, "recurrent_dropout": 0.0, "block_dropout": 0.0}
    noise = draw_noise(torch.empty(time, batch, 1), layers, units, 0, dice(1), **rates)
    assert noise.output is not None
    assert_independent(torch.stack([mask_of(noise.output.layer(i), time, batch, units) for i in range(layers)]), p)
    assert noise.scale == pytest.approx(1 / (1 - p), rel=2e-4)


@pytest.mark.parametrize("p", [0.001, 0.05, RARE, 0.25, 0.5, 0.9])
def test_values_of_the_input_fall_independently_and_the_others_are_scaled(p: float) -> None:
    output = dropped_out(torch.ones(40, 16, 128), p, dice(7))
    assert_independent(output == 0, p)
    torch.testing.assert_close(output[output != 0].unique(), torch.tensor([1 / (1 - p)]), rtol=2e-4, atol=0)


@pytest.mark.parametrize("p", [0.01, 0.1, RARE, 0.3, 0.9])
def test_the_three_kinds_fall_independently_of_each_other(p: float) -> None:
    layers = time = 20
    batch, units = 16, 128
    rolls = dice(8)
    fallen = [dropped_out(torch.ones(time, batch, units), p, rolls) == 0]
    rates = {"dropout": p, "recurrent_dropout": p, "block_dropout": 0.0}
    noise = draw_noise(torch.empty(time, batch, 1), layers, units, 0, rolls, **rates)
    assert noise.output is not None
    assert noise.recurrent is not None
    fallen.append(mask_of(noise.recurrent, layers, batch, units))
    fallen += [mask_of(noise.output.layer(i), time, batch, units) for i in range(layers)]
    for one, other in combinations(fallen, 2):
        assert_share(one & other, p * p)


@pytest.mark.parametrize("p", [0.001, 0.05, RARE])
def test_gaps_are_geometric(p: float) -> None:
    places = dice(2).places(p, 2_000_000)
    gaps = places.diff(prepend=torch.tensor([-1]))
    assert int(gaps.min()) >= 1
    p = 1 - 1 / scale_of(p)  # as it is drawn
    for k in (1, 2, 3, 10, round(1 / p), round(5 / p)):
        assert_share(gaps > k, (1 - p) ** k)


@pytest.mark.parametrize("p", [0.001, 0.2])
def test_all_places_are_as_likely(p: float) -> None:
    """The first and the last ones too: many short stretches, drawn one after the other."""
    count, trials, rolls = 20, 3000, dice(3)
    fallen = torch.zeros(trials, count, dtype=torch.bool)
    for row in fallen:
        row[rolls.places(p, count)] = True
    for column in fallen.unbind(1):
        assert_share(column, 1 - 1 / scale_of(p))


@given(
    p=st.sampled_from([0.0, 1e-6, 0.02, 0.1, RARE, 0.3, 0.95]),
    rows=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 6)),
    data=st.data(),
)
def test_rows_and_joined_parts_are_those_of_the_mask(
    p: float, rows: list[int], shape: tuple[int, int], data: st.DataObject
) -> None:
    drawn = list(dice(4).drops(p, rows, *shape))
    masks = [mask_of(drops, count, *shape) for drops, count in zip(drawn, rows, strict=True)]
    whole = joined(drawn)
    assert torch.equal(mask_of(whole, sum(rows), *shape), torch.cat(masks))
    low = data.draw(st.integers(0, sum(rows)))
    high = data.draw(st.integers(low, sum(rows)))
    part = whole.rows(low, high)
    assert torch.equal(mask_of(part, high - low, *shape), torch.cat(masks)[low:high])
    if high - low > 1:
        assert torch.equal(mask_of(part.rows(1, 2), 1, *shape), torch.cat(masks)[low + 1 : low + 2])


@pytest.mark.parametrize("p", [0.1, 0.6])
def test_zeros_in_place_and_in_a_copy(p: float) -> None:
    (drops,) = dice(5).drops(p, [3], 4, 5)
    values = torch.randn(3, 4, 5)
    copy = drops.zeroed(values)
    assert torch.equal(copy, values * ~mask_of(drops, 3, 4, 5))
    assert drops.zero_(values) is values
    assert torch.equal(values, copy)


@pytest.mark.parametrize("p", [0.1, 0.6])
def test_values_are_held_and_absent_for_a_while(p: float) -> None:
    (drops,) = dice(5).drops(p, [3], 4, 5)
    values = torch.randn(3, 4, 5)
    before, fallen, version = values.clone(), mask_of(drops, 3, 4, 5), values._version
    with drops.absent(values):
        assert torch.equal(values, before * ~fallen)
    assert torch.equal(values, before)
    with drops.held(values):
        values.data.add_(1)
    assert torch.equal(values, before + ~fallen)
    with pytest.raises(KeyboardInterrupt), drops.absent(values):
        raise KeyboardInterrupt
    assert torch.equal(values, before + ~fallen)
    assert values._version == version  # autograd sees no change
