"""What functions do to signs: wherever the symmetry is said to hold, the folded network computes the same."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar

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
