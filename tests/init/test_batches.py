"""Batches as users have them: data loaders, and inputs together with targets."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bipolar
from tests.helpers.signals import mlp


def loader(batch_size: int, **options: Any) -> "DataLoader[Any]":
    return DataLoader(TensorDataset(torch.randn(80, 48), torch.arange(80) % 10), batch_size=batch_size, **options)


def test_a_data_loader_gives_the_inputs_of_its_first_batches() -> None:
    data = loader(16)
    model = mlp(nn.ReLU())
    bipolar.lsuv_(model, data)
    inputs = torch.cat([x for x, _ in data])
    assert model[:2](inputs[:64]).var(correction=0).item() == pytest.approx(1.0, abs=1e-3)
    assert model[:2](inputs[:32]).var(correction=0).item() != pytest.approx(1.0, abs=1e-3)


def test_a_look_into_a_loader_leaves_its_order_as_it_was() -> None:
    own = torch.Generator().manual_seed(3)
    for generator in (None, own):
        model, data = mlp(nn.ReLU()), loader(16, shuffle=True, generator=generator)
        states = torch.get_rng_state(), own.get_state()
        bipolar.lsuv_(model, data, orthogonal=False)
        assert torch.equal(torch.get_rng_state(), states[0])
        assert torch.equal(own.get_state(), states[1])


def test_loaders_of_dictionaries_several_inputs_and_ragged_batches() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
            return self.linear(a + b) * scale

    pairs = [(torch.randn(4), torch.randn(4), 0) for _ in range(8)]
    assert bipolar.lsuv_(Pair(), DataLoader(cast(Any, pairs), batch_size=4))[0].after == pytest.approx(1.0, abs=1e-3)
    named = [{"a": torch.randn(4), "b": torch.randn(4)} for _ in range(8)]
    assert bipolar.lsuv_(Pair(), DataLoader(cast(Any, named), batch_size=4))[0].after == pytest.approx(1.0, abs=1e-3)
    ragged = [torch.randn(3 + i // 4, 4) for i in range(8)]
    layer = nn.Linear(4, 4)
    bipolar.lsuv_(layer, DataLoader(cast(Any, ragged), batch_size=4))
    assert layer(torch.stack(ragged[:4])).var(correction=0).item() == pytest.approx(1.0, abs=1e-3)


def test_an_empty_loader_is_refused() -> None:
    with pytest.raises(ValueError, match="batch: the data loader is empty"):
        bipolar.lsuv_(nn.Linear(4, 4), DataLoader(cast(Any, []), batch_size=4))


def test_inputs_with_targets_are_refused_with_what_to_do() -> None:
    x, y = torch.randn(8, 48), torch.arange(8)
    for run in (bipolar.lsuv_, bipolar.probe):
        with pytest.raises(TypeError, match="forward; that of Sequential takes 1, but the batch has 2; if it is"):
            run(mlp(nn.ReLU()), [x, y])
        with pytest.raises(TypeError, match=r"the batch has 8; join samples to one tensor with torch\.stack"):
            run(mlp(nn.ReLU()), list(x))


def test_a_probe_takes_one_batch() -> None:
    with pytest.raises(TypeError, match="batch: expected what forward takes, got a DataLoader"):
        bipolar.probe(mlp(nn.ReLU()), loader(8))


def test_other_things_than_models_are_refused() -> None:
    with pytest.raises(TypeError, match=r"model: expected an nn\.Module, got str"):
        bipolar.lsuv_(cast(Any, "x"), torch.randn(2, 4))


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (3, TypeError, "batch: expected a tensor, or a tuple or dict with tensors, got int"),
        (None, TypeError, "got NoneType"),
        (torch.zeros(4, 8).numpy(), TypeError, "got ndarray"),
        (torch.zeros(0, 8), ValueError, r"batch: it is empty, of shape \(0, 8\)"),
    ],
)
def test_what_is_no_batch(batch: Any, error: type[Exception], message: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    for function in (bipolar.lsuv_, bipolar.probe):
        with pytest.raises(error, match=message):
            function(model, batch)


def test_a_recurrence_of_one_step_asks_for_more() -> None:
    class Recurrence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.u = nn.Linear(4, 8), nn.Linear(8, 8, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            h = x.new_zeros(len(x), 8)
            for step in x.unbind(1):
                h = torch.tanh(self.w(step) + self.u(h))
            return h

    with pytest.raises(bipolar.LSUVError, match="a recurrence that starts from a constant state needs two steps"):
        bipolar.lsuv_(Recurrence(), torch.randn(16, 1, 4))
    bipolar.lsuv_(Recurrence(), torch.randn(16, 2, 4))
