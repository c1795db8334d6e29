"""The warnings of the probe."""

import pytest
import torch
from torch import nn

import bipolar
from bipolar._probe.diagnosis import diagnose
from bipolar._probe.probe import Layer
from tests.helpers.signals import deep, loss


def test_a_healthy_network_has_none() -> None:
    model = deep(bipolar.gain("belu", stacked=True), activation=bipolar.BELU)
    assert bipolar.probe(model, torch.randn(256, 64), loss).warnings() == []


@pytest.mark.parametrize(("gain", "verb"), [(2.0, "grows"), (1.0, "shrinks")])
def test_a_signal_and_a_gradient_that_grow_or_shrink(gain: float, verb: str) -> None:
    model = deep(gain)
    sentences = bipolar.probe(model, torch.randn(256, 64), lambda y: y.sum() / 1e3).warnings()
    signal, gradient = (sentence for sentence in sentences if verb in sentence)
    head, factor, tail = signal.split(" by ")[0], signal.split()[3], signal.split(" a layer ")[1]
    assert (head, tail) == (f"variance {verb}", "from '0' on")
    assert float(factor) == pytest.approx(2.0, rel=0.1)  # gain² / 2, and its inverse
    assert gradient.startswith(f"the gradient {verb} by 1.4")
    assert gradient.endswith("a layer on its way back from '58' to '0'")


def test_a_trend_that_starts_and_ends_within() -> None:
    variances = [1.0] * 5 + [1.47**i for i in range(1, 11)] + [1.47**10] * 5
    layers = [
        Layer(f"{i}", "Conv2d", 0.0, v, v, 0.0, 0.0, weighted=True, fed_by=(f"{i - 1}",) if i else ())
        for i, v in enumerate(variances)
    ]
    assert diagnose(layers) == ["variance grows by 1.47 a layer from '4' on, up to '14'"]
    for layer in layers:
        layer.fed_by = ()  # side by side, these variances are no trend
    assert diagnose(layers) == []


def test_dead_saturated_constant_and_shifted_layers() -> None:
    layers = [
        Layer("a", "Linear", mean=3.0, variance=1.0, second_moment=10.0, dead=0.0, spread=0.0, weighted=True),
        Layer(
            "b",
            "ReLU",
            mean=0.1,
            variance=1.0,
            second_moment=1.0,
            dead=0.25,
            spread=0.0,
            saturated=0.5,
            values=64,
            fed_by=("a",),
        ),
        Layer("c", "Tanh", mean=0.0, variance=1.0, second_moment=1.0, dead=0.0, spread=0.0, saturated=0.97),
        Layer("d", "Linear", mean=0.0, variance=0.0, second_moment=0.0, dead=1.0, spread=0.0, gradient=0.0),
    ]
    assert diagnose(layers) == [
        "no gradient reaches 'd'",
        "the output is the same for every sample and unit in 'd'",
        "units are dead in 'b', most in 'b': 25%",
        "activations are saturated in 'c', most in 'c': 97%",
        "the mean is larger than the standard deviation in 1 of 1 layers, most in 'a': 3 against 1",
    ]


def test_a_few_samples_do_not_show_dead_units() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    model[0].bias.data[:4] = -100.0
    assert not any("dead" in sentence for sentence in bipolar.probe(model, torch.randn(8, 8)).warnings())
    assert "units are dead in '1', most in '1': 50%" in bipolar.probe(model, torch.randn(64, 8)).warnings()


def test_the_mean_of_the_last_layer_harms_nobody() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    model[2].bias.data[:] = 100.0
    assert bipolar.probe(model, torch.randn(64, 8)).warnings() == []
    model[0].bias.data[:] = 100.0
    (sentence,) = bipolar.probe(model, torch.randn(64, 8)).warnings()
    assert sentence.startswith("the mean is larger than the standard deviation in 1 of 1 layers, most in '0'")


def test_values_that_are_not_finite() -> None:
    model = nn.Sequential(nn.Linear(4, 4), bipolar.Bipolar(lambda x: x / 0.0), nn.Linear(4, 4))
    (sentence,) = bipolar.probe(model, torch.randn(2, 4)).warnings()
    assert sentence.startswith("the output of '1' has NaN or infinity in it")


def test_gradients_that_are_not_finite() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    sentences = bipolar.probe(model, torch.randn(2, 4), lambda y: (y - y.detach()).abs().sqrt().sum()).warnings()
    assert sentences[0] == "the gradient has NaN or infinity in it on 2 of 2 layers"
