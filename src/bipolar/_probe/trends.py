"""Trends of signal and gradient along the paths that they really take through a network."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bipolar._probe.probe import Layer

#: A trend is worth a warning when its steps, the largest not counted, multiply up to this much (one pooling, or the
#: step from the loss to a mean over many positions, is no trend), ...
TREND_FACTOR = 10.0
#: ... by at least this much a step on average.
TREND_FACTOR_PER_LAYER = 1.1
#: The fewest steps of a trend from norm to norm: where norms stand in branches, single steps differ much.
STEPS_BETWEEN_NORMS = 5


class Trend(NamedTuple):
    """A run in one direction along a path: where it starts and ends, and the factor of a typical step."""

    start: "Layer"
    end: "Layer"
    factor: float
    #: whether the path ends with it
    to_the_end: bool


class _Run(NamedTuple):
    """The largest change that ends at a layer: its start, its number of steps, and the largest of them."""

    start: "Layer"
    steps: int
    largest: float


def signal_trend(layers: "list[Layer]") -> Trend | None:
    """The strongest trend of the variance, each layer compared with the one that gives it most of its input."""
    feeders = _nearest(layers, lambda layer: layer.weighted or layer.norm)
    weighted = [layer for layer in layers if layer.weighted]
    before = {layer.name: max(feeders[layer.name], key=lambda f: f.variance, default=None) for layer in weighted}
    return _strongest(weighted, before, lambda layer: layer.variance)


def gradient_trend(layers: "list[Layer]") -> Trend | None:
    """The strongest trend of the gradient on its way back, each layer compared with the one that sends it most.

    It is looked for between the layers with weights; and where there are norms, from norm to norm, because there the
    signal has the same size, and gradients can be compared.
    """
    known = [layer for layer in layers if layer.gradient and math.isfinite(layer.gradient)]
    return _gradient_trend(known, lambda layer: layer.weighted) or _gradient_trend(
        known, lambda layer: layer.norm, STEPS_BETWEEN_NORMS
    )


def _gradient_trend(layers: "list[Layer]", wanted: "Callable[[Layer], bool]", fewest: int = 2) -> Trend | None:
    places = [layer for layer in layers if wanted(layer) or layer.norm]
    feeders = _nearest(layers, lambda layer: wanted(layer) or layer.norm)
    senders: dict[str, list[Layer]] = {layer.name: [] for layer in places}
    for layer in places:
        for feeder in feeders[layer.name]:
            senders[feeder.name].append(layer)
    before = {name: max(found, key=_gradient, default=None) for name, found in senders.items()}
    return _strongest([layer for layer in reversed(places) if wanted(layer)], before, _gradient, fewest)


def _gradient(layer: "Layer") -> float:
    return layer.gradient or 0.0


def _nearest(layers: "list[Layer]", wanted: "Callable[[Layer], bool]") -> "dict[str, list[Layer]]":
    """For each layer the wanted ones that reach it with no other wanted one between."""
    by_name = {layer.name: layer for layer in layers}
    found: dict[str, dict[str, Layer]] = {}
    for layer in layers:
        reached: dict[str, Layer] = {}
        for name in layer.fed_by:
            if name in by_name and wanted(by_name[name]):
                reached[name] = by_name[name]
            else:
                reached |= found.get(name, {})
        found[layer.name] = reached
    return {name: list(reached.values()) for name, reached in found.items()}


def _strongest(
    layers: "list[Layer]", before: "dict[str, Layer | None]", value: "Callable[[Layer], float]", fewest: int = 2
) -> Trend | None:
    """The strongest trend of ``fewest`` steps or more.

    ``layers`` are in the order of the signal or the gradient; ``before`` has the one before each.
    """
    names = {layer.name for layer in layers}
    goes_on = {other.name for other in before.values() if other is not None}
    best: tuple[float, Trend] | None = None
    for sign in (1.0, -1.0):
        runs: dict[str, _Run] = {}
        for layer in layers:
            previous = before[layer.name]
            if previous is None or previous.name not in names:
                continue
            level, level_before = (sign * math.log(max(value(x), 1e-300)) for x in (layer, previous))
            run = runs.get(previous.name)
            if run is None or level_before <= sign * math.log(max(value(run.start), 1e-300)):
                run = _Run(previous, 0, -math.inf)
            run = _Run(run.start, run.steps + 1, max(run.largest, level - level_before))
            runs[layer.name] = run
            rise = level - sign * math.log(max(value(run.start), 1e-300))
            pace = _pace(rise, run)
            if pace is not None and run.steps >= fewest and (best is None or rise > best[0]):
                best = (rise, Trend(run.start, layer, math.exp(sign * pace), layer.name not in goes_on))
    return None if best is None else best[1]


def _pace(rise: float, run: _Run) -> float | None:
    """The logarithm of the average factor of a run's steps but the largest; None if the run is no trend."""
    rest, steps = rise - run.largest, run.steps - 1
    if steps < 1 or rest < math.log(TREND_FACTOR) or rest < steps * math.log(TREND_FACTOR_PER_LAYER):
        return None
    return rest / steps
