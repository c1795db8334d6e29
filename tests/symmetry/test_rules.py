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
    "a product of two signals": lambda h: h * h.roll(1, 1),
    "a product with itself": lambda h: h * h,
    "division by a length": lambda h: h / (torch.linalg.vector_norm(h, 3, 1, True) + h.norm(2, 1, True) + 1),
    "an odd function": lambda h: torch.tanh(tF.hardtanh(h, -2, 2)),
}


BREAKS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "a number that is added": (lambda h: 1 - h, "comes from outside"),
    "ones that are added": (lambda h: h + torch.ones_like(h), "comes from outside"),
    "a mean over channels": (lambda h: h - h.mean(1, keepdim=True), "one sign at mean"),
    "a variance over channels": (lambda h: h * torch.var(h, 1, True, True), "one sign at var"),
    "a mean over everything": (lambda h: h + h.mean(), "one sign at mean"),
    "a gate by the mean over channels": (lambda h: h * h.mean(1, keepdim=True).sigmoid(), "sigmoid"),
    "the spectral norm": (lambda h: h * torch.linalg.norm(h, 2), "linalg_norm is not known"),
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
        (lambda n, x: tF.linear(n.act(n.a(x)), n.a.bias.view(1, 8)), True),
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


class Gated(nn.Module):
    """SwiGLU with a bipolar gate: two layers, their product, a third layer."""

    def __init__(self, tail: Callable[[Tensor], Tensor] = torch.positive) -> None:
        super().__init__()
        self.gate, self.up, self.down, self.act = *(nn.Linear(4, 6) for _ in range(2)), nn.Linear(6, 4), bipolar.BSiLU()
        self.tail = tail

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.tail(self.act(self.gate(x)) * self.up(x)))
        return out


def test_a_gate_takes_its_signs_along_or_leaves_them_to_the_other_factor() -> None:
    assert assert_folds(Gated(), BATCH, torch.randn(3, 4)).holds
    assert assert_folds(Gated(torch.relu), BATCH, torch.randn(3, 4)).holds  # the rows of `up` take up the signs


def test_a_quotient_of_two_signals() -> None:
    assert assert_folds(Net(lambda n, x: n.out(n.act(n.a(x)) / n.b(x))), BATCH, torch.randn(3, 4)).holds
    assert assert_folds(Net(lambda n, x: n.out(n.b(x) / (1 + n.act(n.a(x)).square()))), BATCH).holds
    assert assert_folds(Net(lambda n, x: n.out(2 / torch.tanh(n.b(x)) * n.act(n.a(x)))), BATCH).holds


def test_a_matrix_product_of_two_signals() -> None:
    """As in attention: signs of queries and keys cancel, those of values pass through."""

    def attend(n: Net, x: Tensor) -> Tensor:
        q, k = n.act(n.a(x)), n.act(n.b(x))
        out: Tensor = n.out((q @ k.transpose(-1, -2)).softmax(-1) @ n.act(n.b(x)))
        return out

    assert assert_folds(Net(attend), torch.randn(2, 3, 4), torch.randn(1, 5, 4)).holds
    crossed = Net(lambda n, x: n.out((n.act(n.a(x)) @ n.b(x).roll(1, -1).roll(1, -1).transpose(-1, -2)) @ n.b(x)))
    assert assert_folds(crossed, torch.randn(2, 3, 4)).holds
    mixed = Net(lambda n, x: n.out((n.act(n.a(x)) @ n.act(n.a(x)).roll(1, -1).mT).softmax(-1) @ n.act(n.b(x))))
    assert not assert_folds(mixed, torch.randn(2, 3, 4)).holds


class Standardised(nn.Module):
    """A convolution whose filters have mean 0 and variance 1, in one of the ways to write it."""

    def __init__(self, inputs: int, outputs: int, way: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight, self.bias, self.way = (
            nn.Parameter(torch.randn(outputs, inputs, 3, 3)),
            nn.Parameter(torch.randn(outputs)),
            way,
        )

    def forward(self, x: Tensor) -> Tensor:
        return tF.conv2d(x, self.way(self.weight), self.bias, padding=1)


def by_moments(w: Tensor) -> Tensor:
    var, mean = torch.var_mean(w, (1, 2, 3), keepdim=True, correction=0)
    return (w - mean) / torch.sqrt(var + 1e-6)


def by_batch_norm(w: Tensor) -> Tensor:
    return tF.batch_norm(w.reshape(1, len(w), -1), None, None, training=True, momentum=0.0).reshape_as(w)


@pytest.mark.parametrize("way", [by_moments, by_batch_norm])
def test_a_standardised_weight_takes_up_the_signs_of_its_outputs(way: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(2, 3, 5, 5)
    first = nn.Sequential(Standardised(3, 6, way), bipolar.BReLU(), nn.Conv2d(6, 2, 1))
    assert assert_folds(first, x).holds
    second = nn.Sequential(nn.Conv2d(3, 6, 1), bipolar.BReLU(), Standardised(6, 2, way))
    report = assert_folds(second, x)  # but not those of its inputs, over which it takes a mean
    assert "some of its channels have to have one sign at 2 (conv2d)" in report.summary()


WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "scaled": lambda w: w * 0.3,
    "of unit length": lambda w: tF.normalize(w, dim=1),
    "divided by its norm": lambda w: w / w.norm(dim=1, keepdim=True),
    "divided by its root mean square": lambda w: w / w.pow(2).mean(1, keepdim=True).sqrt(),
    "in another precision": lambda w: w.double().float(),
    "with dropped connections": lambda w: w * (torch.arange(w.size(1)) > 2),
    "cubed, in another order": lambda w: w.flip(1).pow(3),
    "transposed twice": lambda w: w.t().contiguous().t(),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_are_computed(name: str) -> None:
    way = WEIGHTS[name]
    model = Net(lambda n, x: tF.linear(n.act(tF.linear(x, way(n.a.weight), n.a.bias)), way(n.out.weight)))
    assert assert_folds(model, BATCH, torch.randn(3, 4)).holds


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("old", [False, True])
def test_weight_norm(old: bool, dim: int | None) -> None:
    if old:
        with pytest.warns(FutureWarning, match="deprecated"):
            up, down = (torch.nn.utils.weight_norm(nn.Linear(*size), dim=dim) for size in ((4, 8), (8, 2)))
        up(BATCH), down(torch.ones(8))
        with torch.no_grad():  # a copy needs weights that no graph is behind
            up(BATCH), down(torch.ones(8))
    else:
        up, down = (torch.nn.utils.parametrizations.weight_norm(nn.Linear(*s), dim=dim) for s in ((4, 8), (8, 2)))
    model = nn.Sequential(up, bipolar.BReLU(), down)
    assert assert_folds(model, BATCH, torch.randn(3, 4)).holds


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), nn.LayerNorm(8, bias=False), nn.GroupNorm(2, 8)])
def test_a_norm_before_an_activation_gives_its_output_any_signs(norm: nn.Module) -> None:
    with torch.no_grad():
        for p in norm.parameters():
            p.normal_()
    model = nn.Sequential(nn.Linear(4, 8), norm, bipolar.BReLU(dim=-1), nn.Linear(8, 2))
    assert assert_folds(model, BATCH, torch.randn(3, 4)).holds
    bare = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8, elementwise_affine=False), bipolar.BReLU(), nn.Linear(8, 2))
    assert not assert_folds(bare, BATCH).holds
