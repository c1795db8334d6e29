"""Sign rules of functions: wherever the symmetry is said to hold, the folded network computes the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from tests.helpers.folding import BATCH, Net, assert_folds

HOLDS: dict[str, Callable[[Tensor], Tensor]] = {
    "negation": lambda h: -h,
    "a factor": lambda h: 0.5 * h / 3,
    "another precision": lambda h: h.half().float(),
    "a copy": lambda h: h.clone(memory_format=torch.contiguous_format),
    "a square": lambda h: h**2,
    "a cube": lambda h: h.pow(3),
    "the absolute value": lambda h: h.abs(),
    "a shift of channels": lambda h: h.roll(1, 1),
    "another order": lambda h: h.flip(1)[:, torch.tensor([3, 1, 2, 0, 5, 4])],
    "an expansion": lambda h: h.unsqueeze(0).expand(3, -1, -1)[1],
    "a difference to the mean of the batch": lambda h: h - h.mean(0),
    "the deviation over the batch": lambda h: h / (h.std(0, True, True) + 0.1),
    "a norm over channels": lambda h: h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6),
    "unit length": lambda h: tF.normalize(h, dim=1),
    "ones that are multiplied": lambda h: h * torch.ones_like(h),
    "a concatenation with zeros": lambda h: torch.cat([h[:, :3], torch.zeros(5, 3)], 1),
    "a concatenation with ones": lambda h: torch.cat([h[:, :3], torch.ones(5, 3)], 1),
    "padding": lambda h: tF.pad(h, (1, 2))[:, 1:7],
    "padding with ones": lambda h: tF.pad(h, (1, 0), value=1.0)[:, :6],
    "a choice by something else": lambda h: torch.where(torch.arange(6) > 2, h, h.roll(2, 1)),
    "a sum in place": lambda h: h.clone().add_(h),
    "a detour through three dimensions": lambda h: h.view(5, 2, 3).transpose(1, 2).reshape(5, 6),
    "an odd function": lambda h: torch.tanh(tF.hardtanh(h, -2, 2)),
}


BREAKS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "a number that is added": (lambda h: 1 - h, "comes from outside"),
    "ones that are added": (lambda h: h + torch.ones_like(h), "comes from outside"),
    "a mean over channels": (lambda h: h - h.mean(1, keepdim=True), "one sign at mean"),
    "a variance over channels": (lambda h: h * torch.var(h, 1, True, True), "one sign at var"),
    "a mean over everything": (lambda h: h + h.mean(), "one sign at mean"),
    "a gate by the mean over channels": (lambda h: h * h.mean(1, keepdim=True).sigmoid(), "sigmoid"),
    "a product of two signals": (lambda h: h * h.roll(1, 0), "multiplies two signals"),
    "a comparison": (lambda h: torch.where(h > 0, h, 0.0), "gt is not known to keep signs"),
    "a maximum": (lambda h: torch.maximum(h, -h), "takes a maximum"),
    "an order by size": (lambda h: h.sort(1).values, "takes a maximum"),
    "an index by size": (lambda h: h.gather(1, h.argmax(1, keepdim=True).expand(5, 6)), "takes a maximum"),
    "a bound": (lambda h: h.clamp(min=-0.1), "not odd: f(-x) != -f(x)"),
    "bounds of different size": (lambda h: tF.hardtanh(h, -1, 2), "hardtanh is not known"),
    "rounding down": (lambda h: torch.div(h, 2.0, rounding_mode="floor"), "div is not known"),
    "a Fourier transform": (lambda h: torch.fft.fft(h).real, "fft_fft is not known"),
    "values that are set": (lambda h: h.clone().index_fill_(1, torch.tensor([0]), 1.0), "index_fill_ is not known"),
    "another activation": (torch.relu, "not odd: f(-x) != -f(x)"),
}


class Between(nn.Module):
    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.up, self.act, self.down, self.f = nn.Linear(4, 6), bipolar.BReLU(dim=-1), nn.Linear(6, 2), f

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.f(self.act(self.up(x))))
        return out


def check(f: Callable[[Tensor], Tensor]) -> bipolar.SymmetryReport:
    torch.manual_seed(0)
    model = Between(f)
    plain = bipolar.fold(model, torch.randn(5, 4))
    for _ in range(3):
        x = torch.randn(5, 4)
        torch.testing.assert_close(plain(x), model(x), atol=1e-6, rtol=1e-5)
    return bipolar.symmetry(model, torch.randn(5, 4))


@pytest.mark.parametrize("name", HOLDS)
def test_what_commutes_with_signs(name: str) -> None:
    assert check(HOLDS[name]).holds


@pytest.mark.parametrize("name", BREAKS)
def test_what_does_not(name: str) -> None:
    f, reason = BREAKS[name]
    report = check(f)
    assert not report.holds
    assert reason in report.summary()
    assert report.broken_by


def test_a_table_that_is_used_in_part() -> None:
    model = Net(lambda n, x: n.out(n.act(n.a(x)) + n.pos[: x.size(1)]))
    assert assert_folds(model, torch.randn(2, 3, 4), torch.randn(2, 7, 4)).holds
    labelled = Net(lambda n, x, label: n.out(n.act(n.a(x)) + n.pos[label]))
    assert assert_folds(labelled, (BATCH, torch.zeros(6, dtype=torch.int64)), (BATCH, torch.arange(6))).holds


@pytest.mark.parametrize(
    "choose",
    [
        lambda h, i: h.gather(1, i),
        lambda h, i: h.index_select(1, i[:, 0]),
        lambda h, i: h[:, i[:, 0]],
        lambda h, i: h[..., i[0]],
    ],
)
def test_channels_that_an_input_chooses(choose: Callable[[Tensor, Tensor], Tensor]) -> None:
    model = Net(lambda n, x, i: choose(n.act(n.a(x)), i))
    even, odd = torch.tensor([[0], [2]]), torch.tensor([[1], [3]])
    assert not assert_folds(model, (BATCH[:2], even), (BATCH[:2], odd)).holds


@pytest.mark.parametrize(
    "mix",
    [
        lambda h, m: h + m.float(),
        lambda h, m: h + m,
        lambda h, m: torch.where(m > 0, 1.0, h),
        lambda h, m: h.where(m == 0, torch.ones(8)),
    ],
)
def test_zeros_that_may_be_ones_another_time(mix: Callable[[Tensor, Tensor], Tensor]) -> None:
    model = Net(lambda n, x, m: n.out(mix(n.act(n.a(x)), m)))
    zeros = torch.zeros(6, 8, dtype=torch.int64)
    assert not assert_folds(model, (BATCH, zeros), (BATCH, zeros + 1)).holds


@pytest.mark.parametrize(
    ("run", "holds"),
    [
        (lambda n, x: n.out(n.act(n.a(x)) * tF.softplus(n.pos).mean()), True),
        (lambda n, x: n.out(torch.abs(input=n.act(n.a(x)))), True),
        (lambda n, x: n.out(torch.mean(input=n.act(n.a(x)).unsqueeze(0), dim=0)), True),
        (lambda n, x: n.out(torch.where(x[:, :1] > 0, input=n.act(n.a(x)), other=0.0)), True),
        (lambda n, x: n.out(n.act(n.a(x)) + True), False),
        (lambda n, x: n.out(n.act(n.a(x)) * n.act(n.a(x)).var(False)), False),
        (lambda n, x: tF.linear(n.act(n.a(x)), n.a.bias.view(1, 8)), False),
        (lambda n, x: n.out(n.act(n.a(x))) if torch.isfinite(x).all() else n.aux(n.act(n.a(x))), True),
    ],
)
def test_ways_to_call_functions(run: Callable[..., Any], holds: bool) -> None:
    assert assert_folds(Net(run), BATCH, torch.randn(6, 4)).holds == holds


def test_a_custom_operation_is_not_taken_for_one_of_torch() -> None:
    with torch.library._scoped_library("bipolar_test", "DEF") as library:
        library.define("add(Tensor a, Tensor b) -> Tensor")
        library.impl("add", lambda a, b: a.abs() + b, "CompositeImplicitAutograd")
        model = Net(lambda n, x: n.out(torch.ops.bipolar_test.add(n.act(n.a(x)), n.pos[0] * 0)))
        assert "add is not known to keep signs" in bipolar.symmetry(model, BATCH).summary()


def test_an_autoencoder_with_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act = nn.Conv2d(3, 8, 3), bipolar.BReLU()

        def forward(self, x: Tensor) -> Tensor:
            return tF.conv_transpose2d(self.act(self.conv(x)), self.conv.weight)

    assert assert_folds(Tied(), torch.randn(2, 3, 6, 6)).holds


def test_the_weight_that_is_computed_is_named() -> None:
    layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 8))
    report = bipolar.symmetry(nn.Sequential(layer, bipolar.BReLU(), nn.Linear(8, 2)), BATCH)
    assert "its weight is not a parameter, but computed" in report.activations["1"]
