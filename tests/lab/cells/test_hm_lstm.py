"""HM-LSTM against its formulas, case by case; its detectors and their slope."""

from typing import Any, cast

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


@torch.no_grad()
def test_layer_norm_at_its_start() -> None:
    """Gains of one, and no biases."""

    class Start(Twin):
        def norm(self, kind: str, level: int, a: Tensor) -> Tensor:
            centred = a - a.mean()
            return centred / (centred.square().mean() + 1e-5).sqrt()

    cell = HMLSTM(INPUT, OUTPUT, level_size=WIDTH, layer_norm=True).double()
    for parameter in (*cell.recurrent, *cell.bottom_up, *cell.biases):
        parameter.add_(torch.randn_like(parameter))
    twin, x = Start(cell), torch.randn(8, 1, INPUT, dtype=torch.float64)
    output, _ = cell(x)
    torch.testing.assert_close(output[:, 0], torch.stack([twin.step(row) for row in x[:, 0]]))


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


class Step(torch.autograd.Function):
    """The hard step of a detector; backwards it has the slope of the hard sigmoid."""

    @staticmethod
    def forward(ctx: Any, s: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(s, slope)
        return (s > 0).to(s)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        s, slope = ctx.saved_tensors
        return gradient * slope / 2 * ((slope * s).abs() < 1), None


def straight_through(cell: HMLSTM, x: Tensor) -> Tensor:
    """The outputs for one sequence, from the formulas with boundaries as factors, through which a gradient goes."""
    norm, levels = Twin(cell).norm, cell.levels
    h, c = ([x.new_zeros(WIDTH)] * levels for _ in range(2))
    z = [x.new_zeros(())] * levels
    outputs = []
    for row in x:
        old_h, old_c, old_z = list(h), list(c), list(z)
        below_h, below_z = row, x.new_ones(())
        for level in range(levels):
            flush, update, copy = old_z[level], (1 - old_z[level]) * below_z, (1 - old_z[level]) * (1 - below_z)
            s = norm("recurrent", level, cell.recurrent[level][: cell.slices[level]] @ old_h[level])
            s = s + below_z * norm("bottom_up", level, cell.bottom_up[level] @ below_h) + cell.biases[level]
            if level < levels - 1:
                above = cell.recurrent[level + 1][cell.slices[level + 1] :] @ old_h[level + 1]
                s = s + flush * norm("top_down", level, above)
                z[level] = cast(Any, Step).apply(s[-1], cell.slope)
            f, i, o, g = s[: 4 * WIDTH].chunk(4)
            f, i, o, g = f.sigmoid(), i.sigmoid(), o.sigmoid(), g.tanh()
            c[level] = flush * i * g + update * (f * old_c[level] + i * g) + copy * old_c[level]
            h[level] = (flush + update) * o * norm("cell", level, c[level]).tanh() + copy * old_h[level]
            below_h, below_z = h[level], z[level]
        gates = (cell.gates.weight @ torch.cat(h)).sigmoid()
        outputs.append((cell.embedding.weight @ torch.cat([g * part for g, part in zip(gates, h, strict=True)])).relu())
    return torch.stack(outputs)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_gradients_straight_through(layer_norm: bool) -> None:
    """Those of all parameters, where boundaries come and go and detectors are on their slope."""
    cell = HMLSTM(INPUT, OUTPUT, level_size=WIDTH, layer_norm=layer_norm).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    cell.anneal(20)
    x = torch.randn(8, 4, INPUT, dtype=torch.float64)
    output, _ = cell(x)
    expected = torch.stack([straight_through(cell, row) for row in x.unbind(1)], dim=1)
    torch.testing.assert_close(output, expected)
    weights = torch.randn_like(output)
    names, parameters = zip(*cell.named_parameters(), strict=True)
    ours, theirs = (
        dict(zip(names, torch.autograd.grad((y * weights).sum(), parameters), strict=True)) for y in (output, expected)
    )
    torch.testing.assert_close(ours, theirs)
    assert all(bool(ours[f"biases.{level}"][-1]) for level in range(2))  # the detectors learn


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
