"""Divergence before training: the share of fresh stacks whose carried state leaves all bounds.

A stack is drawn, initialised by LSUV, and fed with random symbols, its state carried along. Nothing is trained. Seeds
differ: in one stack some W makes the state grow from step to step, in the next none does. A table of one seed shows
this effect by luck; the share of seeds measures it.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure

from bipolar._activations.moments import Statistic
from bipolar._init.stacked import Balance
from bipolar._tools.figures import ACTIVATION_COLORS
from bipolar.lab.reproduce.item import Computation
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.rules import decided_if
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, Table
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict
from bipolar.models import CharRNN

STEPS, STREAMS, SYMBOLS, WINDOW = 200, 4, 50, 50
#: The second moment of a layer's state counts as within bounds in this range.
LOWEST, HIGHEST = 0.01, 100.0
#: Counts differ if they would be as unequal by chance with a probability below this.
SIGNIFICANT = 0.05
BY_CHANCE = f"by Fisher's exact test at {SIGNIFICANT:.0%}"
#: layers and units of the stacks, and the seeds of each
SETTINGS: dict[Scale, tuple[tuple[tuple[int, int], ...], int]] = {
    "quick": (((36, 64),), 20),
    "small": (((4, 64), (16, 64), (36, 64), (36, 128), (36, 256)), 20),
    "paper": (((4, 760), (36, 64), (36, 128), (36, 256), (144, 128)), 50),
}


class Start(NamedTuple):
    """An activation and how LSUV starts it."""

    nonlinearity: str
    target: Statistic = "variance"
    balance: Balance = "magnitude"


STARTS: dict[str, Start] = {
    "relu": Start("relu"),
    "brelu": Start("brelu"),
    "elu": Start("elu"),
    "belu": Start("belu"),
    "selu": Start("selu"),
    "bselu": Start("bselu"),
    "relu, equal variances": Start("relu", balance="variance"),
    "relu, second moment": Start("relu", target="second_moment"),
}


@torch.no_grad()
def extremes(start: Start, layers: int, units: int, seed: int) -> tuple[float, float]:
    """The smallest and the largest second moment of a layer's state after a window, from a state of zero."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = CharRNN(SYMBOLS, units, layers, nonlinearity=start.nonlinearity).eval()
        generator = torch.Generator().manual_seed(seed)
        model.initialise(start.target, balance=start.balance, generator=generator)
        tokens = torch.randint(SYMBOLS, (STEPS, STREAMS))
    state, sizes = None, []
    for window in tokens.split(WINDOW):
        _, state = model(window, state)
        sizes.append(state.square().mean(dim=(1, 2)))
    found = torch.stack(sizes).nan_to_num(math.inf)
    return float(found.min()), float(found.max())


def compute(scale: Scale, data_dir: Path | None) -> Results:
    shapes, seeds = SETTINGS[scale]
    found: dict[str, Any] = {}
    for layers, units in shapes:
        shape = found[f"{layers}x{units}"] = {}
        for name, start in STARTS.items():
            ends = [extremes(start, layers, units, seed) for seed in range(1, seeds + 1)]
            largest = sorted(high for _, high in ends)
            shape[name] = {
                "left": sum(not (low >= LOWEST and high <= HIGHEST) for low, high in ends),
                "seeds": seeds,
                "median_of_the_largest": min(largest[len(largest) // 2], 1e30),
            }
    return found


def draw(seeds: Sequence[Results]) -> Figure:
    (results,) = seeds
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(STARTS)
    for place, name in enumerate(STARTS):
        start = STARTS[name]
        plain = start.nonlinearity.removeprefix("b")
        shares = [shape[name]["left"] / shape[name]["seeds"] for shape in results.values()]
        errors = [_interval(shape[name]["left"], shape[name]["seeds"]) for shape in results.values()]
        middles = [i + (place - (len(STARTS) - 1) / 2) * width for i in range(len(results))]
        hatch = "///" if start.nonlinearity != plain else {"variance": "..", "magnitude": ""}[start.balance]
        axes.bar(
            middles,
            shares,
            0.9 * width,
            color=ACTIVATION_COLORS[plain],
            alpha=0.4 if start.target == "second_moment" else 0.8,
            hatch=hatch,
            label=name,
        )
        below = [share - low for share, (low, _) in zip(shares, errors, strict=True)]
        above = [high - share for share, (_, high) in zip(shares, errors, strict=True)]
        axes.errorbar(middles, shares, (below, above), fmt="none", color="0.3", linewidth=0.8, capsize=1.5)
    axes.set_xticks(range(len(results)), list(results))
    axes.set(xlabel="layers x units", ylabel="share of fresh stacks that leave the bounds", ylim=(0, 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small", ncols=2)
    return figure


def _interval(left: int, seeds: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of 95 per cent for a share."""
    share, weight = left / seeds, z * z / seeds
    centre = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / seeds + weight / (4 * seeds)) / (1 + weight)
    return max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share))


def tables(seeds: Sequence[Results]) -> list[Table]:
    (results,) = seeds
    counts = {
        name: [Entry([f"{shape[name]['left']} of {shape[name]['seeds']}"]) for shape in results.values()]
        for name in STARTS
    }
    medians = {
        name: [Entry([f"{shape[name]['median_of_the_largest']:.3g}"]) for shape in results.values()] for name in STARTS
    }
    return [
        Table(f"Stacks whose second moment leaves [{LOWEST:g}, {HIGHEST:g}]", list(results), counts),
        Table("Largest second moment of a layer's state, median over the stacks", list(results), medians),
    ]


def chance(more: int, fewer: int, seeds: int) -> float:
    """Fisher's exact test, one-sided: the chance of counts at least as unequal as these if the shares are equal."""
    total = more + fewer
    ways = sum(math.comb(seeds, k) * math.comb(seeds, total - k) for k in range(more, min(total, seeds) + 1))
    return ways / math.comb(2 * seeds, total)


def _deep(e: Evidence, name: str) -> tuple[int, int]:
    """Stacks that leave the bounds, and all stacks, over all widths at 36 layers."""
    (results,) = e.seeds("divergence")
    deep = [shape[name] for key, shape in results.items() if key.startswith("36x")]
    return sum(entry["left"] for entry in deep), sum(entry["seeds"] for entry in deep)


def _show(e: Evidence, *names: str) -> None:
    """Keeps the shares of the stacks that leave the bounds for the report."""
    counts = {name: _deep(e, name) for name in names}
    e.show(
        *(
            Entry(
                [100 * left / seeds],
                name=name,
                quantity="stacks of 36 layers that leave the bounds (%)",
                bounds=tuple(100 * end for end in _interval(left, seeds)),
            )
            for name, (left, seeds) in counts.items()
        )
    )


def _explodes(name: str) -> Callable[[Evidence], Verdict]:
    """A rule: more plain stacks of 36 layers leave the bounds than bipolar ones. No difference leaves it open."""

    def decide(e: Evidence) -> Verdict:
        (plain, seeds), (flipped, _) = _deep(e, name), _deep(e, f"b{name}")
        _show(e, f"b{name}", name)
        p, reverse = chance(plain, flipped, seeds), chance(flipped, plain, seeds)
        reason = f"{plain} of {seeds} {name} stacks of 36 layers leave the bounds, {flipped} of b{name} (p = {p:.2g})"
        if p < SIGNIFICANT:
            return Verdict("reproduced", reason)
        if reverse < SIGNIFICANT:
            return Verdict("not reproduced", reason)
        return Verdict("not decided", f"{reason}; whether training explodes is a question of its runs: Tables 1 and 3")

    return decide


def _variances_harm(e: Evidence) -> Verdict:
    (variance, seeds), (magnitude, _) = _deep(e, "relu, equal variances"), _deep(e, "relu")
    _show(e, "relu", "relu, equal variances")
    p = chance(variance, magnitude, seeds)
    reason = (
        f"36 layers: {variance} of {seeds} ReLU stacks leave the bounds with equal variances, {magnitude} with equal "
        f"magnitudes (p = {p:.2g})"
    )
    return decided_if(p < SIGNIFICANT, reason)


CLAIMS = [
    Claim(
        "exploding relu",
        "The activations of deep ReLU stacks explode, those of BReLU stacks do not.",
        where="Section 4.2: on Text8, training with ReLU diverges due to exploding activation dynamics",
        items=("divergence",),
        rule=f"before any training, more ReLU than BReLU stacks of 36 layers leave the bounds, {BY_CHANCE}",
        decide=_explodes("relu"),
        least="quick",
    ),
    Claim(
        "exploding elu",
        "The activations of deep ELU stacks explode, those of BELU stacks do not.",
        where="Section 4.2: on Text8, training with ELU diverges due to exploding activation dynamics",
        items=("divergence",),
        rule=f"before any training, more ELU than BELU stacks of 36 layers leave the bounds, {BY_CHANCE}",
        decide=_explodes("elu"),
        least="quick",
    ),
    Claim(
        "magnitude",
        "Equal variances of W h and U x instead of equal magnitudes of W and U harm plain ReLU.",
        where=OURS,
        items=("divergence",),
        rule=f"more ReLU stacks of 36 layers leave the bounds, {BY_CHANCE}",
        decide=_variances_harm,
    ),
]

ITEM = Computation(
    name="divergence",
    title="Divergence before training: fresh stacks, their state carried on",
    about=(
        "Stacks of vanilla RNN layers with skips, initialised by LSUV and not trained, fed with random symbols for "
        f"{STEPS} steps. A stack leaves the bounds if the second moment of a layer's state, the mean of its squares, "
        f"is below {LOWEST:g} or above {HIGHEST:g} at the end of a window. LSUV sets the variance of each layer's "
        "output to 1 with weights W and U of equal magnitude, as in the paper. Equal variances: W h and U x bring "
        "equal variances instead. Second moment: LSUV sets the mean of the squares to 1."
    ),
    published={"claim": "with ReLU and ELU activations explode (Text8), with their bipolar variants they do not"},
    caption=(
        "Each bar is the share of fresh stacks whose signal leaves the bounds before any training, with its 95 % "
        "interval; hatched bars are bipolar. Compare a hatched bar with the plain one of its colour, above all at 36 "
        "layers."
    ),
    draw=draw,
    tables=tables,
    compute=compute,
    configuration=lambda scale: {
        "shapes": [f"{layers}x{units}" for layers, units in SETTINGS[scale][0]],
        "seeds": SETTINGS[scale][1],
        "steps": STEPS,
        "streams": STREAMS,
        "symbols": SYMBOLS,
    },
    claims=CLAIMS,
)
