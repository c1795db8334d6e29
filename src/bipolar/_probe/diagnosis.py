"""What is unhealthy about a signal, in plain sentences."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bipolar._probe.probe import Layer

#: The share of a layer's units that may be dead, and of an activation's values that may be saturated: for a ReLU half.
DEAD, SATURATED = 0.1, 0.9
#: A trend is worth a warning when it multiplies up to this much over the layers it runs through, ...
FACTOR = 10.0
#: ... by at least this much a layer on average, ...
A_LAYER = 1.1
#: ... over at least this many layers.
LAYERS = 3


def diagnose(layers: "list[Layer]") -> list[str]:
    """Sentences on values that are not finite, trends of variance and gradient, dead units and saturation."""
    for layer in layers:
        if not math.isfinite(layer.second_moment):
            return [f"the output of {layer.name!r} has NaN or infinity in it; what follows it cannot be judged"]
    sentences = []
    broken = [layer for layer in layers if layer.gradient is not None and not math.isfinite(layer.gradient)]
    if broken:
        sentences.append(f"the gradient has NaN or infinity in it on {_some(broken, layers)}")
    weighted = [layer for layer in layers if layer.weighted]
    trend = _trend([layer.variance for layer in weighted])
    if trend:
        start, end, factor = trend
        verb = "grows" if factor > 1 else "shrinks"
        sentences.append(
            f"variance {verb} by {_a_layer(factor)} a layer from {weighted[start].name!r} on"
            + ("" if end == len(weighted) - 1 else f", up to {weighted[end].name!r}")
        )
    without = [layer for layer in layers if layer.gradient == 0]
    if without:
        sentences.append(f"no gradient reaches {_some(without, layers)}")
    backwards = [layer for layer in reversed(weighted) if layer.gradient and math.isfinite(layer.gradient)]
    trend = _trend([layer.gradient or 0.0 for layer in backwards])
    if trend:
        start, end, factor = trend
        verb = "grows" if factor > 1 else "shrinks"
        sentences.append(
            f"the gradient {verb} by {_a_layer(factor)} a layer on its way back "
            f"from {backwards[start].name!r} to {backwards[end].name!r}"
        )
    constant = [layer for layer in layers if layer.variance == 0]
    if constant:
        sentences.append(f"the output is the same for every sample and unit in {_some(constant, layers)}")
    dead = [layer for layer in layers if layer.variance > 0 and layer.dead >= DEAD]
    if dead:
        worst = max(dead, key=lambda layer: layer.dead)
        sentences.append(f"units are dead in {_some(dead, layers)}, most in {worst.name!r}: {worst.dead:.0%}")
    saturated = [layer for layer in layers if layer.saturated is not None and layer.saturated >= SATURATED]
    if saturated:
        worst = max(saturated, key=lambda layer: layer.saturated or 0.0)
        sentences.append(
            f"activations are saturated in {_some(saturated, layers)}, most in {worst.name!r}: {worst.saturated:.0%}"
        )
    shifted = [layer for layer in weighted if layer.variance > 0 and layer.mean**2 > layer.variance]
    if shifted:
        worst = max(shifted, key=lambda layer: layer.mean**2 / layer.variance)
        sentences.append(
            f"the mean is larger than the standard deviation in {len(shifted)} of {len(weighted)} layers, "
            f"most in {worst.name!r}: {worst.mean:.3g} against {math.sqrt(worst.variance):.3g}"
        )
    return sentences


def _some(found: "list[Layer]", layers: "list[Layer]") -> str:
    """The name of one layer, or how many of them there are."""
    return repr(found[0].name) if len(found) == 1 else f"{len(found)} of {len(layers)} layers"


def _a_layer(factor: float) -> str:
    return f"{factor if factor > 1 else 1 / factor:.3g}"


def _trend(values: list[float]) -> tuple[int, int, float] | None:
    """The strongest run in one direction: where it starts and ends, and the factor from one value to the next.

    The run is the pair of positions between which the values change most, over many layers at a steady pace.
    """
    logs = [math.log(max(value, 1e-300)) for value in values]
    best: tuple[float, int, int] | None = None
    for sign in (1.0, -1.0):
        start = 0  # of the largest rise that ends here, as for the largest sum of a subsequence
        for end in range(1, len(logs)):
            if sign * logs[end - 1] <= sign * logs[start]:
                start = end - 1
            rise = sign * (logs[end] - logs[start])
            if end - start >= LAYERS - 1 and rise > (best[0] if best else 0.0):
                best = (rise, start, end)
    if best is None:
        return None
    rise, start, end = best
    pace = (logs[end] - logs[start]) / (end - start)
    return (start, end, math.exp(pace)) if rise >= math.log(FACTOR) and abs(pace) >= math.log(A_LAYER) else None
