"""Figure 4: norms of gradients over layers and time."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as tF

from bipolar.lab.paper import figure4
from bipolar.lab.reproduce.executors import one_after_another
from bipolar.lab.reproduce.reproduction import Reproduction
from bipolar.models import CharRNN


def test_norms_are_those_of_the_gradient() -> None:
    """Against finite differences: the gradient on one cell's output, by nudging it."""
    torch.manual_seed(0)
    model = CharRNN(5, 6, 5, skip_every=2).double()
    x, y = torch.randint(5, (4, 3)), torch.randint(5, (4, 3))
    norms = figure4.gradient_norms(model, x, y, None)
    assert len(norms) == 5
    assert len(norms[0]) == 4

    def loss(delta: torch.Tensor, layer: int, t: int) -> torch.Tensor:
        rnn, columns = model.rnn, {}
        h = [torch.zeros(3, 6, dtype=torch.float64) for _ in range(5)]
        for step in range(4):
            below = start = model.embedding[x[step]]
            for i, (u, w, b) in enumerate(rnn.layers()):
                start = below if i % 2 == 0 else start
                h[i] = rnn.activation(h[i] @ w.mT + below @ u.mT + b)
                if i in (1, 3):
                    h[i] = h[i] + rnn.skip_scale * start
                if (i, step) == (layer, t):
                    h[i] = h[i] + delta
                below = h[i]
            columns[step] = below
        return tF.cross_entropy(model.decoder(columns[3]), y[-1])

    for layer, t in ((0, 0), (1, 2), (3, 3), (4, 1)):
        delta = torch.zeros(3, 6, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(loss(delta, layer, t), delta)
        assert norms[layer][t] == pytest.approx(gradient.norm().item(), rel=1e-6)


def test_straight_down_and_at_45_degrees() -> None:
    straight, slanted = [[0.0] * 50 for _ in range(36)], [[0.0] * 50 for _ in range(36)]
    straight[0][-1] = slanted[0][-36] = 1.0
    found = figure4.summary({"a": straight, "b": slanted})
    assert found["a"]["mean_lag_of_the_lowest_layer"] == 0
    assert found["b"]["mean_lag_of_the_lowest_layer"] == 35


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure4, "BATCHES", 1)
    monkeypatch.setattr(figure4, "LAYERS", 5)
    monkeypatch.setitem(figure4.SETTINGS, "quick", ("python-docs", 8, 4, 10, 1e-3))
    paths = Reproduction([figure4.ITEM], "quick", tmp_path).run(one_after_another)
    assert [path.name for path in paths] == ["figure4.json", "figure4.svg", "figure4.png"]
    assert all(path.exists() for path in paths)
