"""Verdicts on activations that are not folded: a counter-example, or not shown."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as tF
from torch import Tensor, nn

import bipolar
from tests.helpers.folding import BATCH, Net
from tests.symmetry.test_rules import BREAKS, Standardised, by_moments, check

#: Functions for which no rule is known, though they let the signs through, at least those of the example.
NOT_SHOWN = {
    "the spectral norm",  # the same whatever the signs of columns
    "a maximum",  # of h and -h, the absolute value
    "values that are set",  # in a channel whose sign is +1
    "a gate by the mean over channels",  # at the mean they do not pass, but the gate is blamed
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_cannot_be_has_a_counter_example(name: str) -> None:
    report = check(BREAKS[name][0])
    if name in NOT_SHOWN:
        assert report.not_shown == ["act"]
        assert not report.cannot_be
        assert "1 not shown to be plain" in report.summary()
    else:
        assert report.cannot_be == ["act"]
        assert not report.not_shown
        assert "on the example, its signs turn" in report.summary()


def counter_example(run: Callable[..., Tensor]) -> str | None:
    torch.manual_seed(0)
    return bipolar.symmetry(Net(run), BATCH).counter_examples.get("act")


def test_the_numbers_are_those_of_the_node() -> None:
    """|max(S x)| differs from |max(x)| exactly as the verdict says."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 2), bipolar.BReLU(dim=-1), nn.MaxPool1d(2), nn.Linear(1, 1))
    x = torch.randn(64, 4)
    h = model[1](model[0](x)).detach()
    before, after = h.amax(1), (h * torch.tensor([1.0, -1.0])).amax(1)
    place = (before.abs() - after.abs()).abs().argmax()
    found = bipolar.symmetry(model, x).counter_examples["1"]
    assert f"turn {float(before[place]):.3g} into {float(after[place]):.3g} at 2 (max_pool1d)" in found


def test_a_function_without_a_rule_is_only_not_shown_if_it_lets_signs_through() -> None:
    assert counter_example(lambda n, x: n.out(torch.special.erf(n.act(n.a(x))).nan_to_num())) is None
    assert counter_example(lambda n, x: n.out(torch.expm1(n.act(n.a(x))))) is not None


def test_weights_that_might_take_up_signs_leave_it_open() -> None:
    def run(n: Net, x: Tensor) -> Tensor:
        return tF.bilinear(n.act(n.a(x)), x, n.pos[:2, :, None].expand(2, 8, 4).contiguous())

    assert counter_example(run) is None
    encoder = nn.Sequential(
        nn.Linear(4, 8), bipolar.BReLU(dim=-1), nn.TransformerEncoderLayer(8, 2, 8), nn.Linear(8, 2)
    )
    report = bipolar.symmetry(encoder, torch.randn(3, 2, 4))
    assert report.not_shown == ["1"]
    assert not report.holds


def test_signs_that_are_open_are_tried_both_ways() -> None:
    """fmod has no rule: with the signs of the second argument open, those of the first alone decide."""
    remainder = torch.fmod  # has the sign of its first argument
    assert counter_example(lambda n, x: n.out(remainder(n.act(n.a(x)), n.aux(n.b(x))[:, :1]))) is None
    assert counter_example(lambda n, x: n.out(torch.hypot(n.act(n.a(x)), n.aux(n.b(x))[:, :1]))) is None
    assert counter_example(lambda n, x: n.out(torch.logaddexp(n.act(n.a(x)), n.aux(n.b(x))[:, :1]))) is not None
    assert counter_example(lambda n, x: n.out(torch.logaddexp(n.act(n.a(x)), n.b(x)))) is None  # too many


def test_two_activations_that_meet_with_different_signs() -> None:
    def run(n: Net, x: Tensor) -> Tensor:
        out: Tensor = n.out(n.act(n.a(x)) + n.other(n.b(x)))
        return out

    model = Net(run)
    model.other = bipolar.BReLU(dim=-1, pattern="halves")
    report = bipolar.symmetry(model, BATCH)
    assert report.cannot_be == ["act", "other"]
    assert "turn" in report.counter_examples["other"]


def test_norms_and_standardised_weights() -> None:
    for norm in (nn.LayerNorm(8), nn.GroupNorm(2, 8)):
        model = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(dim=-1), norm, nn.Linear(8, 2))
        nn.init.normal_(norm.bias)
        assert bipolar.symmetry(model, BATCH).cannot_be == ["1"]
    model = nn.Sequential(nn.Conv2d(3, 6, 1), bipolar.BReLU(), Standardised(6, 2, by_moments))
    assert bipolar.symmetry(model, torch.randn(2, 3, 5, 5)).cannot_be == ["1"]


def test_a_norm_that_says_nothing_refutes_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(dim=-1), nn.LayerNorm(8), nn.Linear(8, 2))
    assert bipolar.symmetry(model, BATCH[0]).not_shown == ["1"]  # without a batch
    nn.init.zeros_(model[2].weight)
    assert bipolar.symmetry(model, BATCH).not_shown == ["1"]  # its output is always the same


def test_without_numbers_nothing_is_refuted() -> None:
    model = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(dim=-1), nn.LayerNorm(8), nn.Linear(8, 2)).to("meta")
    assert bipolar.symmetry(model, BATCH.to("meta")).not_shown == ["1"]
