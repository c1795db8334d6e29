"""The benchmark of ingredients, in seconds: each keeps what it promises, and every row learns."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks import ingredients
from benchmarks.ingredients import ROWS, Scaled, Standardised, Trial, centred, error_of
from bipolar.lab.data.images import ImageSet, load_images


@pytest.fixture(scope="module")
def digits() -> ImageSet:
    data = load_images("digits", train_images=1000)
    return replace(data, test=data.test.first(200))


@pytest.mark.parametrize("row", ROWS)
def test_every_row_learns(row: str, digits: ImageSet) -> None:
    error = error_of(row, digits, 1)
    assert isinstance(error, float)
    assert error < (80 if row.startswith("Muon") else 89)  # a guess is wrong in 90 of 100; SGD is slow


def test_standardised_filters_have_mean_zero_and_the_norm_of_the_start() -> None:
    weight = torch.randn(5, 3, 3, 3) + 1
    found = Standardised(weight)(weight)
    torch.testing.assert_close(found.mean(dim=(1, 2, 3)), torch.zeros(5), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.flatten(1).norm(dim=1), weight.flatten(1).norm(dim=1))


def test_a_branch_starts_at_zero_and_leaves_it() -> None:
    scaled = Scaled(nn.Identity())
    output = scaled(torch.ones(3))
    output.sum().backward()
    assert torch.equal(output, torch.zeros(3))
    assert float(scaled.scale.grad or 0.0) == 3


def test_centred_filters_stay_centred_and_keep_their_norm(digits: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingredients, "EPOCHS", 1)
    trial = Trial(digits, 1)
    centred(trial)
    norms = [layer.weight.detach().flatten(1).norm(dim=1) for layer in trial.convolutions[1:]]
    trial.train()
    for layer, norm in zip(trial.convolutions[1:], norms, strict=True):
        torch.testing.assert_close(layer.weight.detach().flatten(1).norm(dim=1), norm)
        torch.testing.assert_close(layer.weight.detach().mean(dim=(1, 2, 3)), torch.zeros(len(norm)), atol=1e-6, rtol=0)
