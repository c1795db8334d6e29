"""Orders of images in an epoch."""

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from bipolar.lab.data.order import shuffled


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 5), st.integers(0, 100), st.booleans())
def test_every_image_once(images: int, batch_size: int, classes: int, seed: int, unfair: bool) -> None:
    labels = torch.randint(0, 10, (images,), generator=torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(seed)
    order = shuffled(labels, generator, batch_size, classes if unfair else None)
    assert sorted(order.tolist()) == list(range(images))


def test_a_batch_has_images_of_one_group_of_classes() -> None:
    labels = torch.arange(10).repeat(40)
    order = shuffled(labels, torch.Generator().manual_seed(1), 16, classes=2)
    groups = [set(labels[batch].tolist()) for batch in order.view(-1, 16)]
    assert all(len(group) == 2 for group in groups)
    assert len({frozenset(group) for group in groups}) == 5  # a class has one partner in an epoch
    changes = sum(a != b for a, b in pairwise(groups))
    assert changes > 10  # the batches of a group do not come one after another
    again = shuffled(labels, torch.Generator().manual_seed(2), 16, classes=2)
    assert {frozenset(labels[batch].tolist()) for batch in again.view(-1, 16)} != {frozenset(g) for g in groups}


def test_a_fair_order_is_that_of_randperm() -> None:
    """Runs of the paper's recipe stay as they were, bit for bit."""
    labels = torch.arange(10).repeat(4)
    order = shuffled(labels, torch.Generator().manual_seed(3), 8)
    assert torch.equal(order, torch.randperm(40, generator=torch.Generator().manual_seed(3)))
