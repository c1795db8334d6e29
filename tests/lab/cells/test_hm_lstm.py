"""HM-LSTM against its formulas, case by case; its detectors and their slope."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm as normed

from bipolar.lab.cells.hm_lstm import HMLSTM
from tests.lab.cells.twins import BATCH, INPUT, check_copying, check_gradients, check_windows

OUTPUT, WIDTH = 5, 4


def made(levels: int, layer_norm: bool) -> HMLSTM:
    """With weights so large that all three operations occur."""
    cell = HMLSTM(INPUT, OUTPUT, level_size=WIDTH, levels=levels, layer_norm=layer_norm).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(1.5 * torch.randn_like(parameter))
    return cell


class Twin:
    """One sequence, level by level and in cases; it notes which operation occurred on which level."""

    def __init__(self, cell: HMLSTM) -> None:
        self.cell = cell
        self.h = [torch.zeros(WIDTH).double()] * cell.levels
        self.c = [torch.zeros(WIDTH).double()] * cell.levels
        self.z = [0] * cell.levels
        self.seen: set[tuple[int, str]] = set()

    def norm(self, kind: str, level: int, a: Tensor) -> Tensor:
        if self.cell.norms is None:
            return a
        module = self.cell.norms[kind][level]
        return normed(a, a.shape, module.weight, module.bias)

    def step(self, x: Tensor) -> Tensor:
        cell, levels = self.cell, self.cell.levels
        old_h, old_c, old_z = list(self.h), list(self.c), list(self.z)
        below_h, below_z = x, 1
        for level in range(levels):
            top = level == levels - 1
            rows = 4 * WIDTH + (0 if top else 1)
            s = self.norm("recurrent", level, cell.recurrent[level][:rows] @ old_h[level]) + cell.biases[level]
            if below_z:
                s = s + self.norm("bottom_up", level, cell.bottom_up[level] @ below_h)
            if not top and old_z[level]:
                above = 4 * WIDTH + (0 if level + 1 == levels - 1 else 1)
                s = s + self.norm("top_down", level, cell.recurrent[level + 1][above:] @ old_h[level + 1])
            f, i, o = (s[k * WIDTH : (k + 1) * WIDTH].sigmoid() for k in range(3))
            g = s[3 * WIDTH : 4 * WIDTH].tanh()
            if old_z[level]:
                operation, self.c[level] = "flush", i * g
            elif below_z:
                operation, self.c[level] = "update", f * old_c[level] + i * g
            else:
                operation = "copy"
            if operation != "copy":
                self.h[level] = o * self.norm("cell", level, self.c[level]).tanh()
            self.seen.add((level, operation))
            if not top:
                self.z[level] = int(max(0.0, min(1.0, (float(s[-1]) + 1) / 2)) > 0.5)
            below_h, below_z = self.h[level], self.z[level]
        everything = torch.cat(self.h)
        weighted = torch.zeros(OUTPUT).double()
        for level in range(levels):
            gate = (cell.gates.weight[level] @ everything).sigmoid()
            weighted += gate * (cell.embedding.weight[:, level * WIDTH : (level + 1) * WIDTH] @ self.h[level])
        return weighted.clamp(min=0)


@torch.no_grad()
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("levels", [2, 3])
def test_formula(levels: int, layer_norm: bool) -> None:
    """Among a few networks, flush, update and copy all occur on each level where they can."""
    seen: set[tuple[int, str]] = set()
    for _ in range(6):
        cell = made(levels, layer_norm)
        x = torch.randn(8, BATCH, INPUT, dtype=torch.float64)
        output, last = cell(x)
        for b in range(BATCH):
            twin = Twin(cell)
            for t in range(len(x)):
                torch.testing.assert_close(output[t, b], twin.step(x[t, b]))
            torch.testing.assert_close(last[0, b], torch.cat((*twin.h, *twin.c, torch.tensor(twin.z[:-1]).double())))
            seen |= twin.seen
    possible = {(level, operation) for level in range(levels) for operation in ("flush", "update", "copy")}
    assert seen == possible - {(0, "copy"), (levels - 1, "flush")}


@pytest.mark.parametrize("layer_norm", [False, True])
def test_windows(layer_norm: bool) -> None:
    check_windows(made(3, layer_norm))


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("shift", [-1e3, 1e3])
def test_gradients(shift: float, layer_norm: bool) -> None:
    """With detectors held fast, shut or open, all is smooth."""
    cell = HMLSTM(2, 2, level_size=2 if layer_norm else 1, layer_norm=layer_norm)
    with torch.no_grad():
        for bias in cell.biases[:-1]:
            bias[-1] = shift
    check_gradients(cell)


def test_straight_through() -> None:
    """The value of a detector is hard, its gradient that of the hard sigmoid."""
    cell = HMLSTM(INPUT, OUTPUT)
    cell.anneal(25)
    x = torch.tensor([-0.6, -0.4, 0.4, 0.6], requires_grad=True)
    z = cell._boundary(x)
    assert z.tolist() == [0.0, 0.0, 1.0, 1.0]
    z.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_the_detectors_learn() -> None:
    cell = made(3, False)
    cell(torch.randn(10, BATCH, INPUT, dtype=torch.float64))[0].sum().backward()
    assert all(bool(bias.grad[-1]) for bias in cell.biases[:-1])


def test_anneal() -> None:
    cell = HMLSTM(INPUT, OUTPUT)
    slopes = []
    for epoch in (0, 1, 50, 100, 500):
        cell.anneal(epoch)
        slopes.append(float(cell.slope))
    assert slopes == pytest.approx([1.0, 1.04, 3.0, 5.0, 5.0])
    other = HMLSTM(INPUT, OUTPUT)
    other.load_state_dict(cell.state_dict())
    assert float(other.slope) == 5.0


def test_arguments() -> None:
    with pytest.raises(ValueError, match="levels: expected at least 2 of them, got 1"):
        HMLSTM(INPUT, OUTPUT, levels=1)
    with pytest.raises(ValueError, match="level_size: expected a whole number of at least 1, got 0"):
        HMLSTM(INPUT, OUTPUT, level_size=0)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_parameters(layer_norm: bool) -> None:
    cell = HMLSTM(INPUT, OUTPUT, level_size=WIDTH, layer_norm=layer_norm)
    slices = 2 * (4 * WIDTH + 1) + 4 * WIDTH
    top_down = 2 * (4 * WIDTH + 1) * WIDTH
    bottom_up = (4 * WIDTH + 1) * INPUT + (8 * WIDTH + 1) * WIDTH
    expected = slices * (WIDTH + 1) + top_down + bottom_up + 3 * WIDTH * (3 + OUTPUT)
    expected += (3 * slices - 4 * WIDTH + 3 * 2 * WIDTH) * layer_norm
    assert sum(p.numel() for p in cell.parameters()) == expected


@pytest.mark.parametrize("layer_norm", [False, True])
def test_copying(layer_norm: bool) -> None:
    check_copying(HMLSTM(4, 16, layer_norm=layer_norm), steps=60, rate=0.03)
