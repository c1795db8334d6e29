"""Moments and gains against closed forms, sampling, and the layers they are meant for."""

import math
from typing import Any

import pytest
import torch
from torch import nn

import bipolar
import bipolar.functional as F

DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)
BOUNDED = ("hardsigmoid", "hardtanh", "sigmoid", "softsign", "tanh")
UNBOUNDED = [name for name in bipolar.list_activations() if name not in (*BOUNDED, "oplu", "crelu")]


@pytest.mark.parametrize("std", [1e-3, 0.3, 1.0, 4.0, 1e3])
def test_relu_in_closed_form(std: float) -> None:
    plain, flipped = bipolar.moments("relu", std), bipolar.moments("brelu", std)
    assert plain.mean == pytest.approx(std * DENSITY_AT_0, rel=1e-9)
    assert plain.second_moment == pytest.approx(std**2 / 2, rel=1e-9)
    assert plain.variance == pytest.approx(std**2 * (1 / 2 - DENSITY_AT_0**2), rel=1e-9)
    assert plain.derivative_second_moment == pytest.approx(1 / 2, rel=1e-9)
    assert flipped == pytest.approx((0.0, plain.second_moment, plain.second_moment, 1 / 2), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.5, 1.0])
def test_leaky_relu_in_closed_form(slope: float) -> None:
    ours = bipolar.moments(nn.LeakyReLU(slope))
    second = (1 + slope**2) / 2
    assert ours == pytest.approx(
        ((1 - slope) * DENSITY_AT_0, second - ((1 - slope) * DENSITY_AT_0) ** 2, second, second), abs=1e-9
    )


def test_elu_in_closed_form() -> None:
    """E[e^x; x < 0] = e^(s²/2) Phi(-s) for x ~ N(0, s²), and the same with 2s for its square."""

    def negative_exponential(s: float) -> float:
        return math.exp(s**2 / 2) * math.erfc(s / math.sqrt(2)) / 2

    for std in (0.5, 1.0, 3.0):
        one, two = negative_exponential(std), negative_exponential(2 * std)
        ours = bipolar.moments("elu", std)
        assert ours.mean == pytest.approx(std * DENSITY_AT_0 + one - 1 / 2, abs=1e-9)
        assert ours.second_moment == pytest.approx(std**2 / 2 + two - 2 * one + 1 / 2, abs=1e-9)
        assert ours.derivative_second_moment == pytest.approx(1 / 2 + two, abs=1e-9)


def test_selu_is_at_its_fixed_point() -> None:
    assert bipolar.moments("selu")[:3] == pytest.approx((0.0, 1.0, 1.0), abs=1e-6)
    for name in ("selu", "bselu"):
        for stacked in (False, True):
            assert bipolar.gain(name, stacked=stacked) == pytest.approx(1.0, abs=1e-6)


def test_relu_gains() -> None:
    assert bipolar.gain("relu") == pytest.approx(1 / math.sqrt(1 / 2 - DENSITY_AT_0**2), abs=1e-9)
    assert bipolar.gain("relu", stacked=True) == pytest.approx(math.sqrt(2), abs=1e-9)
    for stacked in (False, True):
        assert bipolar.gain("relu", keep="second_moment", stacked=stacked) == pytest.approx(math.sqrt(2), abs=1e-9)
        assert bipolar.gain("brelu", stacked=stacked) == pytest.approx(math.sqrt(2), abs=1e-9)
        assert bipolar.gain("identity", stacked=stacked) == pytest.approx(1.0, abs=1e-9)
    for slope in (0.1, 0.3):
        torch_says = nn.init.calculate_gain("leaky_relu", slope)
        assert bipolar.gain(nn.LeakyReLU(slope), "second_moment") == pytest.approx(torch_says, abs=1e-9)


@pytest.mark.parametrize("std", [0.5, 2.0])
@pytest.mark.parametrize("name", [name for name in bipolar.list_activations() if name != "hardsigmoid"])
def test_moments_against_sampling(name: str, std: float) -> None:
    """Within five standard errors of a sample: a right value fails once in two million."""
    module = bipolar.get_activation(name).eval()
    x = (std * torch.randn(50_000, 8, dtype=torch.float64)).requires_grad_()
    output = module.double()(x)
    (derivative,) = torch.autograd.grad(output.sum(), x)
    ours = bipolar.moments(name, std)
    samples = (output, output.square(), derivative.square())
    for value, sample in zip((ours.mean, ours.second_moment, ours.derivative_second_moment), samples, strict=True):
        # rows, not elements, are independent where units come in pairs
        rows = sample.detach().mean(dim=1)
        assert abs(value - rows.mean().item()) <= 5 * rows.std().item() / math.sqrt(len(rows)) + 1e-12
    assert ours.variance == pytest.approx(ours.second_moment - ours.mean**2, abs=1e-12)


def test_hardsigmoid_in_closed_form() -> None:
    """x / 6 + 1 / 2 up to 6 standard deviations, where a sample has no values."""
    ours = bipolar.moments("hardsigmoid", 0.5)
    expected = (1 / 2, 1 / 144, 1 / 144 + 1 / 4, 1 / 36)
    assert ours == pytest.approx(expected, abs=1e-8)  # torch has the slope 1/6 in single precision


@pytest.mark.parametrize("keep", ["variance", "second_moment"])
@pytest.mark.parametrize("name", UNBOUNDED)
def test_a_gain_keeps_what_it_says(name: str, keep: Any) -> None:
    once = bipolar.gain(name, keep)
    assert getattr(bipolar.moments(name, once), keep) == pytest.approx(1.0, abs=1e-6)
    stacked = bipolar.gain(name, keep, stacked=True)
    # layer upon layer: the variance of the next layer's input is g² times the second moment of this one's output
    std = once
    for _ in range(5):
        std = stacked * math.sqrt(bipolar.moments(name, std).second_moment)
    assert getattr(bipolar.moments(name, std), keep) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("f", [torch.relu, F.belu, nn.functional.mish, torch.exp, lambda x: 1e6 * x])
def test_few_evaluations_find_a_gain(f: Any) -> None:
    """Every recurrent stack that is made asks for one."""
    calls = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        return f(x)

    found = bipolar.gain(counted)
    assert len(calls) <= 20
    assert bipolar.moments(f, found).variance == pytest.approx(1.0, abs=1e-11)


def test_a_variance_that_jumps_over_1() -> None:
    """No line leads to it, but bisection does."""

    def step(x: torch.Tensor) -> torch.Tensor:
        return 4.0 * (x.abs() > 2)

    found = bipolar.gain(step)
    below, above = (bipolar.moments(step, found * (1 + shift)).variance for shift in (-1e-11, 1e-11))
    assert below < 1 < above


def test_a_gain_in_a_network_of_100_layers() -> None:
    width, gain = 512, bipolar.gain("belu", stacked=True)
    x = torch.randn(256, width)
    for _ in range(100):
        x = F.belu(x @ torch.randn(width, width) * gain / math.sqrt(width))
    assert 0.5 < x.var().item() < 2.0  # a gain that is off by 2 % would end a factor of 50 away


def test_functions_and_modules_are_welcome() -> None:
    for f in (F.belu, bipolar.BELU(), bipolar.BELU(dim=-1), bipolar.BELU(dim=3, pattern="halves"), "belu"):
        assert bipolar.moments(f) == pytest.approx(bipolar.moments("belu"))
    slopes = nn.PReLU(8)
    assert bipolar.moments(slopes) == pytest.approx(bipolar.moments("prelu"))
    assert slopes.weight.dtype == torch.float32
    assert slopes.weight.grad is None
    training = bipolar.BRReLU().train()
    assert bipolar.moments(training) == bipolar.moments(training)
    assert training.training


def test_in_place_functions_large_means_and_inference_mode() -> None:
    for f in (nn.ReLU(inplace=True), torch.relu_):
        assert bipolar.moments(f) == pytest.approx(bipolar.moments("relu"))
    assert bipolar.moments(lambda x: x + 1e6).variance == pytest.approx(1.0, abs=1e-6)
    with torch.inference_mode():
        assert bipolar.gain("elu") == pytest.approx(1.3219389963)


def test_kinks_away_from_zero() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return (x > 0.7312).to(x.dtype)

    expected = math.erfc(0.7312 / math.sqrt(2)) / 2
    assert bipolar.moments(step, kinks=(0.7312,)).mean == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["tanh", torch.sigmoid, torch.cos])
def test_an_activation_that_cannot_keep_it_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match=r"gain: no scale of its input gives .* an output with a variance of 1"):
        bipolar.gain(name)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="std: expected a positive number, got 0"):
        bipolar.moments("relu", 0.0)
    with pytest.raises(ValueError, match="std: expected a finite number, got inf"):
        bipolar.moments("relu", math.inf)
    word: Any = "1"
    with pytest.raises(TypeError, match="std: expected a number, got '1'"):
        bipolar.moments("relu", word)
    bad: Any = "mean"
    with pytest.raises(ValueError, match="keep: expected 'variance' or 'second_moment', got 'mean'"):
        bipolar.gain("relu", bad)
    with pytest.raises(ValueError, match="name: no activation is called 'rellu'; did you mean"):
        bipolar.gain("rellu")
