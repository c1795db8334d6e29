"""Plot of signal and gradient against depth. Needs matplotlib."""

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from bipolar._tools.figures import BLUE, GREEN, VERMILION

if TYPE_CHECKING:
    from bipolar._probe.probe import Layer

#: More names than this do not fit below the axis.
LABELS = 40


def draw(layers: "list[Layer]") -> Figure:
    """Mean and variance above, the gradient below if there is one; layers from left to right as they ran."""
    gradients = any(layer.gradient is not None for layer in layers)
    width = min(16.0, max(6.0, 0.12 * len(layers) + 4))
    figure = Figure(figsize=(width, 7.5 if gradients else 5.5), layout="constrained")
    panels = figure.subplots(3 if gradients else 2, 1, sharex=True, squeeze=False)[:, 0]
    marker = "o" if len(layers) <= LABELS else ""
    _panel(panels[0], [layer.variance for layer in layers], "variance", BLUE, marker, reference=1.0, log=True)
    _panel(panels[1], [layer.mean for layer in layers], "mean", VERMILION, marker, reference=0.0)
    if gradients:
        values = [layer.gradient for layer in layers]
        _panel(panels[2], values, "gradient", GREEN, marker, log=True)
    step = -(-len(layers) // LABELS)
    panels[-1].xaxis.set_major_locator(FixedLocator(list(range(0, len(layers), step))))
    panels[-1].set_xticklabels([layer.name for layer in layers[::step]], rotation=90, fontsize=7)
    panels[-1].set_xlabel("layer, in the order of execution" + (f"; one in {step} is named" if step > 1 else ""))
    return figure


def _panel(
    axes: Axes,
    values: "list[float | None] | list[float]",
    label: str,
    color: str,
    marker: str,
    *,
    reference: float | None = None,
    log: bool = False,
) -> None:
    shown = [float("nan") if value is None or (log and value <= 0) else value for value in values]
    if reference is not None:
        axes.axhline(reference, color="0.7", linewidth=0.8)
    axes.plot(range(len(shown)), shown, color=color, marker=marker, markersize=3, linewidth=1.2)
    if log and any(value > 0 for value in shown):
        axes.set_yscale("log")
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)
