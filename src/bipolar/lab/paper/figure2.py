r"""Figure 2: iterations of x_{i+1} = f(W x_i), plain and bipolar.

By its caption, :math:`x_1 \sim \mathcal{N}(0, 1)` and :math:`W \sim \mathcal{N}(0, \sigma^2)`, with :math:`\sigma` set
by LSUV such that :math:`f(W x_1)` has unit variance. Mean and variance of :math:`x_i` are averaged over 50 runs, each
with its own :math:`x_1` and W. The caption does not give the number of units and of iterations: 256 and 40 here.

The second row is ours: the same with :math:`\sigma` set for unit *second moment*. A bipolar system with W and
:math:`x_1` is the plain one with :math:`S W S` and :math:`S x_1`, which are equally likely, so bipolarity can only
change what LSUV measures. Both use the same random numbers, one of them seen through S: the curves of the second moment
coincide in the second row, and differ in the first.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import bipolar
from bipolar._activations.moments import Statistic
from bipolar._activations.patterns import signs
from bipolar._init.meter import Meter
from bipolar._init.solver import solve
from bipolar._tools.figures import ACTIVATION_COLORS
from bipolar.lab.reproduce.item import Computation
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.rules import decided_if
from bipolar.lab.reproduce.tables import Entry, Table
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, MissingError, Verdict

UNITS, ITERATIONS, RUNS, SEED = 256, 40, 50, 0
NAMES = ("relu", "elu", "leaky_relu", "selu")
TITLES = {"relu": "ReLU", "elu": "ELU", "leaky_relu": "Leaky ReLU (0.2)", "selu": "SELU"}
#: The statistic of each row: LSUV sets it to 1, and its curve is drawn beside the mean.
ROWS: tuple[Statistic, ...] = ("variance", "second_moment")

#: The decimal logarithm of the smallest factor that counts as growth, 1.25.
FACTOR = 0.1
#: The statistics of an iteration. Results have their means over all systems and, as ``median_...``, their medians.
STATISTICS = ("mean", "variance", "second_moment")

Curves = dict[str, list[float]]


def activation(name: str, kind: Literal["plain", "bipolar"]) -> nn.Module:
    options = {"negative_slope": 0.2} if name == "leaky_relu" else {}  # with 0.01 it looks like a ReLU
    return bipolar.get_activation(name if kind == "plain" else f"b{name}", **options)


def iterate(f: nn.Module, x: Tensor, weight: Tensor, target: Statistic) -> Curves:
    """The mean and the median of each statistic over all runs, by iteration.

    ``weight`` has unit variance, and is scaled by LSUV. A few systems that explode make nearly all of a mean; the
    median shows the typical system.
    """
    meter = Meter(target, None)
    field = (weight @ x.unsqueeze(2)).squeeze(2)

    def scale(row: Tensor) -> float:
        return solve(lambda sigma: meter(f(sigma * row)), tol=1e-3, max_iter=40).scale

    sigma = torch.tensor([scale(row) for row in field.unsqueeze(1)])
    curves: Curves = {key: [] for name in STATISTICS for key in (name, f"median_{name}")}
    for step in range(ITERATIONS):
        if step:
            x = f(sigma[:, None] * (weight @ x.unsqueeze(2)).squeeze(2))
        variance, mean = torch.var_mean(x, dim=1, correction=0)
        for statistic, values in (("mean", mean), ("variance", variance), ("second_moment", variance + mean**2)):
            curves[statistic].append(values.mean().item())
            curves[f"median_{statistic}"].append(values.median().item())
    return curves


def compute() -> dict[str, dict[str, Curves]]:
    """The curves by row and activation, such as ``["second_moment"]["belu"]``."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(RUNS, UNITS, generator=generator)
    weight = torch.randn(RUNS, UNITS, UNITS, generator=generator)
    sign = signs(UNITS)
    inputs = {"plain": (x, weight), "bipolar": (sign * x, sign[:, None] * weight * sign)}
    return {
        target: {
            (name if kind == "plain" else f"b{name}"): iterate(activation(name, kind), *inputs[kind], target)
            for name in NAMES
            for kind in ("plain", "bipolar")
        }
        for target in ROWS
    }


def draw(seeds: Sequence[Results]) -> Figure:
    curves: dict[str, dict[str, Curves]] = seeds[0]
    figure = Figure(figsize=(13, 7), layout="constrained")
    panels = figure.subplots(len(ROWS), 3, sharex=True)
    iterations = range(1, ITERATIONS + 1)
    for row, target in zip(panels, ROWS, strict=True):
        label = target.replace("_", " ")
        for axes, statistic in zip(row, ("mean", target, f"median_{target}"), strict=True):
            for name in NAMES:
                color, title = ACTIVATION_COLORS[name], TITLES[name]
                plain, flipped = (curves[target][kind][statistic] for kind in (name, f"b{name}"))
                # broad and pale below, thin and dashed on top: both stay visible where they coincide
                axes.plot(iterations, plain, color=color, linewidth=4, alpha=0.4, label=title)
                axes.plot(iterations, flipped, "--", color=color, linewidth=1.5, label=f"bipolar {title}")
            average = "median" if statistic.startswith("median_") else "average"
            name = statistic.removeprefix("median_").replace("_", " ")
            axes.set(title=f"LSUV on {label}", ylabel=f"{name}, {average} of the systems")
            axes.spines[["top", "right"]].set_visible(False)
            if statistic == "mean":
                axes.set_yscale("symlog", linthresh=1)
                axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
            else:
                axes.set_yscale("log")
                axes.axhline(1, color="0.8", linewidth=0.8, zorder=0)
    for axes in panels[-1]:
        axes.set_xlabel("iteration")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def tables(seeds: Sequence[Results]) -> list[Table]:
    curves, names = seeds[0], [kind for name in NAMES for kind in (name, f"b{name}")]
    columns = [(target, key) for target in ROWS for key in ("second_moment", "median_second_moment")]
    rows = {name: [Entry([curves[target][name][key][-1]]) for target, key in columns] for name in names}
    headings = [f"LSUV on {target.replace('_', ' ')}, {kind}" for target in ROWS for kind in ("average", "median")]
    return [Table("Second moment after the last iteration", headings, rows)]


def _dynamics(e: Evidence) -> Verdict:
    (results,) = e.seeds("figure2")
    held, reasons = [], []
    for kind, key in (("median", "median_second_moment"), ("average", "second_moment")):
        try:
            ends = {name: float(curve[key][-1]) for name, curve in results["variance"].items()}
        except KeyError:
            raise MissingError("figure2 was recorded without medians") from None
        held.append(_bipolar_grows_less(ends))
        _show(e, ends, f"second moment after the last iteration, {kind} of the systems, as a power of ten")
        pairs = "; ".join(f"{n} {ends[n]:.3g} and {ends[f'b{n}']:.3g}" for n in ends if not n.startswith("b"))
        reasons.append(f"{kind} of the systems, plain and bipolar: {pairs}")
    reason = "second moment after the last iteration, " + "; ".join(reasons)
    return Verdict("not decided", reason) if any(held) and not all(held) else decided_if(all(held), reason)


def _show(e: Evidence, ends: Mapping[str, float], quantity: str) -> None:
    """Keeps the ends of the curves for the report, each bipolar one beside its plain one, as powers of ten."""

    def entry(name: str) -> Entry:
        power = math.log10(max(ends[name], 1e-30))
        return Entry([power if power < math.inf else "infinite"], name=name, quantity=quantity)

    for name in ends:
        if not name.startswith("b"):
            e.show(entry(f"b{name}"), entry(name))


def _bipolar_grows_less(ends: Mapping[str, float]) -> bool:
    """Whether most systems that grow grow less with the bipolar activation, and none grows more."""

    def growth(name: str) -> float:
        return max(0.0, math.log10(max(ends[name], 1e-30))) if ends[name] < math.inf else math.inf

    plain = [name for name in ends if not name.startswith("b")]
    growing = [name for name in plain if growth(name) > FACTOR]
    less = [name for name in growing if growth(f"b{name}") < growth(name) - FACTOR]
    more = [name for name in plain if growth(f"b{name}") > growth(name) + FACTOR]
    return not more and len(less) > len(growing) / 2


def _lsuv_explains(e: Evidence) -> Verdict:
    (results,) = e.seeds("figure2")
    curves = results["second_moment"]
    apart = max(
        abs(math.log(float(curves[f"b{name}"]["second_moment"][-1]) / float(curve["second_moment"][-1])))
        for name, curve in curves.items()
        if not name.startswith("b")
    )
    ends = {name: float(curve["second_moment"][-1]) for name, curve in curves.items()}
    _show(e, ends, "second moment after the last iteration, as a power of ten")
    reason = (
        f"with LSUV on the second moment the curves of plain and bipolar differ by a factor of at most "
        f"{math.exp(apart):.6f}"
    )
    return decided_if(apart < 0.01, reason)


CLAIMS = [
    Claim(
        "dynamics",
        "Iterated bipolar layers are less prone to an exploding mean and variance than plain ones.",
        where="Figure 2",
        items=("figure2",),
        rule=(
            "of the activations whose second moment, which holds both, has grown by the last iteration, it has grown "
            "less for most bipolar versions, by a factor of 1.25, and for none more: in the median of the systems, and "
            "in their average, nearly all of which may come from one of them"
        ),
        decide=_dynamics,
        least="quick",
    ),
    Claim(
        "lsuv",
        "What bipolarity changes is what LSUV measures: with LSUV on the second moment plain and bipolar systems "
        "do the same.",
        where=OURS,
        items=("figure2",),
        rule="the second moments after the last iteration differ by less than one per cent",
        decide=_lsuv_explains,
        least="quick",
    ),
]

ITEM = Computation(
    name="figure2",
    title="Figure 2: iterations of x = f(W x), plain and bipolar",
    about=(
        "x starts normal, W is normal, scaled by LSUV such that f(W x) has unit variance (first row), or unit second "
        "moment, the mean of the squares (second row, ours). Averages over many such systems."
    ),
    claims=CLAIMS,
    published={"claim": "the bipolar systems are less prone to an exploding mean and variance"},
    caption=(
        "Pale and broad: plain activations; dashed: their bipolar versions. On top, LSUV on the variance: a dashed "
        "curve below the pale one of its colour is a system that grows less with the bipolar activation. Below, LSUV "
        "on the second moment: there the two should coincide in all panels but those of the mean."
    ),
    draw=draw,
    tables=tables,
    compute=lambda scale, data_dir: compute(),
    configuration=lambda scale: {"units": UNITS, "iterations": ITERATIONS, "systems": RUNS, "seed": SEED},
)
