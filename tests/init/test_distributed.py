"""LSUV with real processes: all ranks end up with the same weights, those of one process with the whole batch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import bipolar
from tests.helpers.processes import in_two_ranks


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(42)
        return nn.Sequential(nn.Linear(16, 24), bipolar.BELU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4))


def batch() -> torch.Tensor:
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    x[32:] *= 3  # the halves differ: each alone would give other scales
    return x


def initialise(rank: int, directory: Path) -> None:
    """Saves what each kind of LSUV leaves on a rank."""
    results = {}
    for kind in ("kept", "orthogonal", "channels", "bad"):
        model, error = DistributedDataParallel(network()), ""
        part = batch().chunk(2)[rank]
        if kind == "bad" and rank == 1:
            part[0, 0] = float("nan")
        try:
            channels = kind == "channels"
            bipolar.lsuv_(model, part, orthogonal=kind == "orthogonal", per_channel=channels, centre=channels)
        except bipolar.LSUVError as caught:
            error = str(caught)
        results[kind] = {"error": error, "state": dict(model.module.state_dict())}
    torch.save(results, directory / str(rank))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes found, by rank."""
    directory = tmp_path_factory.mktemp("ranks")
    in_two_ranks(initialise, directory)
    return [torch.load(directory / str(rank), weights_only=True) for rank in range(2)]


def test_every_rank_ends_with_the_weights_of_the_whole_batch(ranks: list[dict[str, Any]]) -> None:
    first, second = (rank["kept"]["state"] for rank in ranks)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    alone = network()
    bipolar.lsuv_(alone, batch(), orthogonal=False)
    torch.testing.assert_close(first, dict(alone.state_dict()), rtol=1e-4, atol=1e-5)


def test_channels_are_measured_over_all_ranks(ranks: list[dict[str, Any]]) -> None:
    first, second = (rank["channels"]["state"] for rank in ranks)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    alone = network()
    bipolar.lsuv_(alone, batch(), orthogonal=False, per_channel=True, centre=True)
    torch.testing.assert_close(first, dict(alone.state_dict()), rtol=1e-4, atol=1e-5)


def test_orthogonal_weights_are_the_same_on_every_rank(ranks: list[dict[str, Any]]) -> None:
    first, second = (rank["orthogonal"]["state"] for rank in ranks)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert not torch.equal(first["0.weight"], network()[0].weight)


def test_an_error_on_one_rank_is_one_on_all(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["bad"]["error"] == "batch: there is NaN or infinity in it"
        torch.testing.assert_close(rank["bad"]["state"], dict(network().state_dict()), rtol=0, atol=0)
