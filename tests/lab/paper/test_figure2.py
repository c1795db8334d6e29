from typing import Any

import pytest
import torch
from torch import nn

import bipolar
from bipolar.lab.paper import figure2
from bipolar.lab.reproduce.verdicts import Evidence


@pytest.fixture(scope="module")
def small() -> Any:
    """The same experiment with fewer units and runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("UNITS", 64), ("ITERATIONS", 12), ("RUNS", 10)):
            patch.setattr(figure2, name, value)
        yield figure2.compute()


def test_it_starts_at_the_first_normal_vector_and_goes_on_with_unit_variance(small: Any) -> None:
    for target, curves in small.items():
        for statistics in curves.values():
            assert statistics["second_moment"][0] == pytest.approx(1.0, abs=0.2)
            assert statistics[target][1] == pytest.approx(1.0, abs=1e-3)


def test_with_the_second_moment_plain_and_bipolar_fall_together(small: Any) -> None:
    for name in figure2.NAMES:
        plain, flipped = (small["second_moment"][kind]["second_moment"] for kind in (name, f"b{name}"))
        assert plain == pytest.approx(flipped, rel=1e-4)


def test_with_the_variance_they_do_not(small: Any) -> None:
    plain, flipped = (small["variance"][kind]["second_moment"] for kind in ("relu", "brelu"))
    assert plain[-1] > 10 * flipped[-1]


def test_it_is_the_system_of_the_caption() -> None:
    """Against a loop without batches, for one run."""
    generator = torch.Generator().manual_seed(5)
    x, weight = torch.randn(1, 32, generator=generator), torch.randn(1, 32, 32, generator=generator)
    curves = figure2.iterate(bipolar.BELU(), x, weight, "variance")
    layer = nn.Sequential(nn.Linear(32, 32, bias=False), bipolar.BELU())
    layer[0].weight.data = weight[0].clone()
    bipolar.lsuv_(layer, x, orthogonal=False)
    state = x
    for mean, variance in zip(curves["mean"], curves["variance"], strict=True):
        assert (mean, variance) == pytest.approx(
            (state.mean().item(), state.var(correction=0).item()), rel=1e-2, abs=1e-3
        )
        state = layer(state).detach()
        if variance > 100:
            break


def test_the_panels(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure2, "ITERATIONS", 12)
    axes = figure2.draw([small]).axes
    average, median = "average of the systems", "median of the systems"
    assert [panel.get_ylabel() for panel in axes] == [
        *(f"mean, {average}", f"variance, {average}", f"variance, {median}"),
        *(f"mean, {average}", f"second moment, {average}", f"second moment, {median}"),
    ]


def test_medians_are_those_of_single_systems() -> None:
    generator = torch.Generator().manual_seed(6)
    x, weight = torch.randn(3, 32, generator=generator), torch.randn(3, 32, 32, generator=generator)
    together = figure2.iterate(nn.ReLU(), x, weight, "variance")
    alone = [figure2.iterate(nn.ReLU(), x[i : i + 1], weight[i : i + 1], "variance") for i in range(3)]
    for statistic in figure2.STATISTICS:
        values = torch.tensor([curves[statistic] for curves in alone])
        expected = {statistic: values.mean(dim=0), f"median_{statistic}": values.median(dim=0).values}
        for key, curve in expected.items():
            torch.testing.assert_close(torch.tensor(together[key]), curve, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("plain", "flipped", "status"),
    [
        ((1e5, 1e13), (0.1, 1e8), "reproduced"),
        ((1e5, 1e8), (0.1, 1e13), "not decided"),
        ((0.1, 1e8), (1e5, 1e13), "not reproduced"),
    ],
)
def test_growth_in_median_and_average_decides(plain: Any, flipped: Any, status: str) -> None:
    curves = {
        f"{prefix}{name}": {"median_second_moment": [ends[0]], "second_moment": [ends[1]]}
        for name in figure2.NAMES
        for prefix, ends in (("", plain), ("b", flipped))
    }
    evidence = Evidence({"figure2": {"scale": "quick", "complete": True, "results": {"variance": curves}}})
    assert figure2.CLAIMS[0].verdict(evidence).status == status
