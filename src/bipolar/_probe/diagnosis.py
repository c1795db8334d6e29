"""Diagnosis of a signal: sentences on everything that is unhealthy about it."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bipolar._probe.probe import Layer

#: The share of dead units from which on a layer is worth a warning.
DEAD_SHARE = 0.1
#: The share of saturated values from which on an activation is worth a warning; a healthy ReLU has half.
SATURATED_SHARE = 0.9
#: A trend is worth a warning when it multiplies up to this much over the layers it runs through, ...
TREND_FACTOR = 10.0
#: ... by at least this much a layer on average, ...
TREND_FACTOR_PER_LAYER = 1.1
#: ... over at least this many layers.
TREND_LAYERS = 3


def diagnose(layers: "list[Layer]") -> list[str]:
    """Sentences on values that are not finite, trends of variance and gradient, dead units and saturation."""
    for layer in layers:
        if not math.isfinite(layer.second_moment):
            return [f"the output of {layer.name!r} has NaN or infinity in it; what follows it cannot be judged"]
    weighted = [layer for layer in layers if layer.weighted]
    return [
        *_broken_gradients(layers),
        *_variance_trend(weighted),
        *_missing_gradients(layers),
        *_gradient_trend(weighted),
        *_constant_outputs(layers),
        *_dead_units(layers),
        *_saturation(layers),
        *_large_means(weighted),
    ]


def _broken_gradients(layers: "list[Layer]") -> Iterator[str]:
    broken = [layer for layer in layers if layer.gradient is not None and not math.isfinite(layer.gradient)]
    if broken:
        yield f"the gradient has NaN or infinity in it on {_some(broken, layers)}"


def _missing_gradients(layers: "list[Layer]") -> Iterator[str]:
    without = [layer for layer in layers if layer.gradient == 0]
    if without:
        yield f"no gradient reaches {_some(without, layers)}"


def _variance_trend(weighted: "list[Layer]") -> Iterator[str]:
    trend = _trend([layer.variance for layer in weighted])
    if trend:
        start, end, factor = trend
        until = "" if end == len(weighted) - 1 else f", up to {weighted[end].name!r}"
        yield f"variance {_change(factor)} a layer from {weighted[start].name!r} on{until}"


def _gradient_trend(weighted: "list[Layer]") -> Iterator[str]:
    backwards = [layer for layer in reversed(weighted) if layer.gradient and math.isfinite(layer.gradient)]
    trend = _trend([layer.gradient or 0.0 for layer in backwards])
    if trend:
        start, end, factor = trend
        way = f"from {backwards[start].name!r} to {backwards[end].name!r}"
        yield f"the gradient {_change(factor)} a layer on its way back {way}"


def _constant_outputs(layers: "list[Layer]") -> Iterator[str]:
    constant = [layer for layer in layers if layer.variance == 0]
    if constant:
        yield f"the output is the same for every sample and unit in {_some(constant, layers)}"


def _dead_units(layers: "list[Layer]") -> Iterator[str]:
    dead = [layer for layer in layers if layer.variance > 0 and layer.dead >= DEAD_SHARE]
    if dead:
        worst = max(dead, key=lambda layer: layer.dead)
        yield f"units are dead in {_some(dead, layers)}, most in {worst.name!r}: {worst.dead:.0%}"


def _saturation(layers: "list[Layer]") -> Iterator[str]:
    saturated = [layer for layer in layers if layer.saturated is not None and layer.saturated >= SATURATED_SHARE]
    if saturated:
        worst = max(saturated, key=lambda layer: layer.saturated or 0.0)
        yield f"activations are saturated in {_some(saturated, layers)}, most in {worst.name!r}: {worst.saturated:.0%}"


def _large_means(weighted: "list[Layer]") -> Iterator[str]:
    shifted = [layer for layer in weighted if layer.variance > 0 and layer.mean**2 > layer.variance]
    if shifted:
        worst = max(shifted, key=lambda layer: layer.mean**2 / layer.variance)
        yield (
            f"the mean is larger than the standard deviation in {len(shifted)} of {len(weighted)} layers, "
            f"most in {worst.name!r}: {worst.mean:.3g} against {math.sqrt(worst.variance):.3g}"
        )


def _some(found: "list[Layer]", layers: "list[Layer]") -> str:
    """The name of the layer if only one was found, else their number."""
    return repr(found[0].name) if len(found) == 1 else f"{len(found)} of {len(layers)} layers"


def _change(factor: float) -> str:
    return f"grows by {factor:.3g}" if factor > 1 else f"shrinks by {1 / factor:.3g}"


def _trend(values: list[float]) -> tuple[int, int, float] | None:
    """The strongest run in one direction: its start, its end, and the average factor from one value to the next.

    The run lies between the two positions with the largest change; None if it is short, weak or slow.
    """
    logs = [math.log(max(value, 1e-300)) for value in values]
    best: tuple[float, int, int] | None = None
    for sign in (1.0, -1.0):
        start = 0  # of the largest rise that ends here, as for the largest sum of a subsequence
        for end in range(1, len(logs)):
            if sign * logs[end - 1] <= sign * logs[start]:
                start = end - 1
            rise = sign * (logs[end] - logs[start])
            if end - start >= TREND_LAYERS - 1 and rise > (best[0] if best else 0.0):
                best = (rise, start, end)
    if best is None:
        return None
    rise, start, end = best
    pace = (logs[end] - logs[start]) / (end - start)
    strong = rise >= math.log(TREND_FACTOR) and abs(pace) >= math.log(TREND_FACTOR_PER_LAYER)
    return (start, end, math.exp(pace)) if strong else None
