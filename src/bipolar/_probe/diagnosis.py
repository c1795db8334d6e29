"""Diagnosis of a signal: sentences on everything that is unhealthy about it."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bipolar._probe.lyapunov import EDGE, describe
from bipolar._probe.trends import gradient_trend, signal_trend

if TYPE_CHECKING:
    from bipolar._probe.probe import Layer

#: The share of dead units from which on a layer is worth a warning.
DEAD_SHARE = 0.1
#: The number of values of a unit from which on its zeros are no accident.
ENOUGH_VALUES = 64
#: The share of saturated values from which on an activation is worth a warning; a healthy ReLU has half.
SATURATED_SHARE = 0.9


def diagnose(layers: "list[Layer]") -> list[str]:
    """Sentences on values that are not finite, trends of variance and gradient, dead units, saturation and chaos."""
    for layer in layers:
        if not math.isfinite(layer.second_moment):
            return [f"the output of {layer.name!r} has NaN or infinity in it; what follows it cannot be judged"]
    unset = [layer for layer in layers if layer.unset]
    if unset:
        return [
            f"batch norm uses running statistics that no batch has set yet in {_some(unset, layers)}; what follows "
            "it cannot be judged: probe the model in training mode"
        ]
    silent = _silent(layers)
    return [
        *_broken_gradients(layers),
        *_variance_trend(layers),
        *_missing_gradients(layers, silent),
        *_gradient_trend(layers),
        *_constant_outputs(layers, silent),
        *_dead_units(layers),
        *_saturation(layers),
        *_large_means(layers),
        *(describe(x.name, x.lyapunov) for x in layers if x.lyapunov is not None and not x.lyapunov <= EDGE),
    ]


def _broken_gradients(layers: "list[Layer]") -> Iterator[str]:
    broken = [layer for layer in layers if layer.gradient is not None and not math.isfinite(layer.gradient)]
    if broken:
        yield f"the gradient has NaN or infinity in it on {_some(broken, layers)}"


def _missing_gradients(layers: "list[Layer]", silent: set[str]) -> Iterator[str]:
    feeds = _feeds(layers)
    behind = set(silent)  # a branch that starts at zero lets no gradient in
    for layer in reversed(layers):
        if layer.gradient == 0 and feeds[layer.name] and all(other.name in behind for other in feeds[layer.name]):
            behind.add(layer.name)
    without = [layer for layer in layers if layer.gradient == 0 and layer.name not in behind]
    if without:
        yield f"no gradient reaches {_some(without, layers)}"


def _variance_trend(layers: "list[Layer]") -> Iterator[str]:
    trend = signal_trend(layers)
    if trend:
        until = "" if trend.to_the_end else f", up to {trend.end.name!r}"
        yield f"variance {_change(trend.factor)} a layer from {trend.start.name!r} on{until}"


def _gradient_trend(layers: "list[Layer]") -> Iterator[str]:
    trend = gradient_trend(layers)
    if trend:
        way = f"from {trend.start.name!r} to {trend.end.name!r}"
        yield f"the gradient {_change(trend.factor)} a layer on its way back {way}"


def _constant_outputs(layers: "list[Layer]", silent: set[str]) -> Iterator[str]:
    constant = [layer for layer in layers if layer.variance == 0 and layer.name not in silent]
    if constant:
        yield f"the output is the same for every sample and unit in {_some(constant, layers)}"


def _dead_units(layers: "list[Layer]") -> Iterator[str]:
    dead = [
        layer for layer in layers if layer.variance > 0 and layer.dead >= DEAD_SHARE and layer.values >= ENOUGH_VALUES
    ]
    if dead:
        worst = max(dead, key=lambda layer: layer.dead)
        yield f"units are dead in {_some(dead, layers)}, most in {worst.name!r}: {worst.dead:.0%}"


def _saturation(layers: "list[Layer]") -> Iterator[str]:
    saturated = [layer for layer in layers if layer.saturated is not None and layer.saturated >= SATURATED_SHARE]
    if saturated:
        worst = max(saturated, key=lambda layer: layer.saturated or 0.0)
        yield f"activations are saturated in {_some(saturated, layers)}, most in {worst.name!r}: {worst.saturated:.0%}"


def _large_means(layers: "list[Layer]") -> Iterator[str]:
    feeds = _feeds(layers)
    weighted = [layer for layer in layers if layer.weighted and feeds[layer.name]]  # the last layer's mean harms nobody
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


def _feeds(layers: "list[Layer]") -> "dict[str, list[Layer]]":
    """For each layer those that it feeds."""
    feeds: dict[str, list[Layer]] = {layer.name: [] for layer in layers}
    for layer in layers:
        for name in layer.fed_by:
            feeds[name].append(layer)
    return feeds


def _silent(layers: "list[Layer]") -> set[str]:
    """Branches that end in zeros by design: all that they feed has a signal from elsewhere too."""
    alive = {layer.name for layer in layers if layer.second_moment > 0}
    feeds, silent = _feeds(layers), set[str]()
    for layer in reversed(layers):
        fed = feeds[layer.name]
        if layer.name not in alive and fed and all(x.name in silent or alive & set(x.fed_by) for x in fed):
            silent.add(layer.name)
    return silent
