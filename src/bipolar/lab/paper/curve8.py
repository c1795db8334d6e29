"""A study: the error on Text8 by the length of training, and a power law that says where it would go.

The paper trains 36 layers of 474 units on Text8 for days of a GPU. Here runs of several lengths, each with its own
falling rate, give a curve; the law through the shorter ones is checked by the longest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from bipolar.lab.data.files import CHARACTERS
from bipolar.lab.paper import table2, table4
from bipolar.lab.reproduce.comparisons import Margin
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Outcome, Results
from bipolar.lab.reproduce.power_law import PowerLaw
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, Table, flat_table
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, MissingError, Verdict
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.lab.training.update import Update

#: The steps of the runs.
LENGTHS: dict[Scale, tuple[int, ...]] = {
    "quick": (5, 10, 20, 40),
    "small": (100, 200, 400, 800),
    "paper": (1000, 2000, 4000, 8000, 16_000),
}
#: A law holds if it tells the error of the longest run, twice as long as the one before it, within so many BPC.
WITHIN = 0.03
GATELESS = "Skipping-RNN (Pachitariu & Sahani, 2013)"


def runs(scale: Scale) -> dict[str, TextConfig]:
    update = Update(recipe="fast", optimizer="muon", adam_lr=1e-3)
    if scale == "quick":
        base = TextConfig(
            "python-docs", TextModel(8, 32), update=replace(update, adam_lr=None), batch_size=8, window=25
        )
        base = replace(base, max_valid_windows=5)
    else:
        model = replace(table2.FIRST.model, dropout=0.0, recurrent_dropout=0.0, block_dropout=0.0)
        base = TextConfig("text8-74M", model, machine=table2.FIRST.machine, update=update, lr=0.01)
        base = replace(base, max_valid_windows=100, patience=10**6)
    if scale == "paper":
        base = replace(base, data="text8", model=replace(base.model, hidden_size=474))
    return {f"{steps} steps": replace(base, max_steps=steps) for steps in LENGTHS[scale]}


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    return {
        name: {
            "characters": outcome.config["max_steps"] * outcome.config["batch_size"] * outcome.config["window"] / 1e6,
            "epoch": CHARACTERS.get(outcome.config["data"], 0) / 1e6,
            "valid_bpc": outcome.result["best_valid_bpc"] if outcome.converged else DNC,
            "test_bpc": outcome.result["test_bpc"] if outcome.converged else DNC,
            "seconds": outcome.result.get("seconds"),
        }
        for name, outcome in outcomes.items()
    }


def _points(seeds: Sequence[Results]) -> list[tuple[float, float]]:
    """Millions of characters and test error of all runs that converged, the shortest first."""
    runs = [run for seed in seeds for run in seed.values()]
    return sorted((run["characters"], run["test_bpc"]) for run in runs if isinstance(run["test_bpc"], float))


def _longest(seeds: Sequence[Results]) -> float:
    """The characters of the longest runs, those that did not converge included."""
    return max(float(run["characters"]) for seed in seeds for run in seed.values())


def _epoch(seeds: Sequence[Results]) -> float:
    """The characters of an epoch, in millions; 0 for a text whose size is its own matter."""
    return float(next(iter(seeds[0].values()))["epoch"])


def _law(seeds: Sequence[Results], *, without_longest: bool = False) -> PowerLaw | None:
    points = [point for point in _points(seeds) if not without_longest or point[0] < _longest(seeds)]
    return PowerLaw(points) if len({x for x, _ in points}) >= 3 else None


def _of_longest(seeds: Sequence[Results]) -> list[float | str]:
    """The test errors of the longest runs."""
    longest = _longest(seeds)
    return [run["test_bpc"] for seed in seeds for run in seed.values() if run["characters"] == longest]


def _law_holds(seeds: Sequence[Results]) -> bool:
    """Whether the law of the shorter runs falls, and tells the error of the longest."""
    law = _law(seeds, without_longest=True)
    if law is None or law.exponent >= 0:
        return False
    told = law.at(_longest(seeds))
    return all(isinstance(error, float) and abs(error - told) <= WITHIN for error in _of_longest(seeds))


def tables(seeds: Sequence[Results]) -> list[Table]:
    measured = flat_table(
        "By length of training",
        seeds,
        {
            "characters": "million characters",
            "valid_bpc": "validation BPC",
            "test_bpc": "test BPC",
            "seconds": "seconds",
        },
    )
    law, shorter, longest = _law(seeds), _law(seeds, without_longest=True), _longest(seeds)
    rows = {}
    if shorter is not None:
        rows["the longest run, by the shorter ones"] = [*_predicted(shorter, longest), Entry(_of_longest(seeds))]
    if law is not None and _epoch(seeds) and _law_holds(seeds):
        rows["one epoch"] = [*_predicted(law, _epoch(seeds)), Entry(["not run"])]
    columns = ["million characters", "test BPC", "from", "to", "measured"]
    return [measured, Table("By the power law; from and to: 95 %, if errors scatter around it", columns, rows)]


def _predicted(law: PowerLaw, length: float) -> list[Entry]:
    return [Entry([value]) for value in (length, law.at(length), *law.interval(length))]


def draw(seeds: Sequence[Results]) -> Figure:
    """The test error against the characters of training, both in logarithms, with the law and its interval.

    The law goes on to one epoch if it holds.
    """
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    points, law = _points(seeds), _law(seeds)
    axes.set(xscale="log", yscale="log", xlabel="million characters of training", ylabel="test BPC")
    axes.plot([x for x, _ in points], [y for _, y in points], "o", color="#1f77b4", label="runs")
    if law is not None:
        first, last = points[0][0], max(_epoch(seeds) if _law_holds(seeds) else 0.0, points[-1][0])
        grid = [first * (last / first) ** (place / 40) for place in range(41)]
        low, high = zip(*(law.interval(x) for x in grid), strict=True)
        axes.plot(grid, [law.at(x) for x in grid], color="#d95f02", label=f"power law, exponent {law.exponent:.3f}")
        axes.fill_between(
            grid, low, high, color="#d95f02", alpha=0.15, linewidth=0, label="95 %, if errors scatter around it"
        )
    for name in (GATELESS, "BELU 36x474 (Eidnes & Nøkland, 2018)"):
        axes.axhline(table4.NETWORKS[name], color="grey", linewidth=0.8, linestyle="--")
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(f"{name}, published", (0.01, table4.NETWORKS[name]), (0, 2), fontsize=7, **place)
    axes.minorticks_off()
    axes.set_xticks(marks := [1, 2, 5, 10, 20, 50], [f"{mark}" for mark in marks])
    axes.set_yticks(ticks := [1.2, 1.4, 1.6, 1.8, 2.0, 2.4, 2.8], [f"{tick:g}" for tick in ticks])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _check(e: Evidence) -> tuple[bool, str]:
    """Whether the law of the shorter runs tells the error of the longest, and the reason."""
    seeds = e.seeds("curve8")
    law, longest = _law(seeds, without_longest=True), _longest(seeds)
    if law is None:
        raise MissingError("curve8 has too few runs that converged")
    measured = Entry(_of_longest(seeds), name="the longest run", quantity="test BPC")
    predicted = Entry([law.at(longest)], name="by the law of the shorter ones", quantity="test BPC")
    e.show(measured, predicted, margin=Margin(WITHIN, WITHIN, "BPC"))
    reason = f"test BPC after {longest:.1f} million characters {measured.text()}, by the law {predicted.text()}"
    return _law_holds(seeds), reason


def _holds(e: Evidence) -> Verdict:
    holds, reason = _check(e)
    return Verdict("reproduced" if holds else "not reproduced", reason)


def _passes(e: Evidence) -> Verdict:
    """The law says that an epoch passes the best published network without gates, if its interval is below that."""
    seeds, rival = e.seeds("curve8"), table4.NETWORKS[GATELESS]
    holds, reason = _check(e)
    law, epoch = _law(seeds), _epoch(seeds)
    if law is None or not epoch:
        raise MissingError("curve8 has no text of a known size")
    if not holds:
        return Verdict("not decided", f"the law does not hold: {reason}")
    low, high = law.interval(epoch)
    predicted = Entry([law.at(epoch)], name="one epoch, by the law", quantity="test BPC", bounds=(low, high))
    e.show(predicted, Entry([rival], name=GATELESS))
    reason = f"test BPC after one epoch {low:.3f} to {high:.3f} by the law, against {rival} of {GATELESS}"
    if low <= rival <= high:
        return Verdict("not decided", reason)
    return Verdict("reproduced" if high < rival else "not reproduced", reason)


CLAIMS = [
    Claim(
        "power law on text8",
        "On Text8 the error falls as a power of the length of training.",
        where=OURS,
        items=("curve8",),
        rule=(
            f"the law of the shorter runs falls, and is at most {WITHIN} BPC off the test error of the longest run, "
            "which is twice as long as the one before it"
        ),
        decide=_holds,
    ),
    Claim(
        "text8 within an epoch",
        "By that law one epoch of the text takes the network past the best published one without gates.",
        where=OURS,
        items=("curve8",),
        rule=(
            "the law holds, and its interval of 95 % at one epoch is below 1.48 BPC, of Skipping-RNN, which was "
            "measured on all of Text8's test part"
        ),
        decide=_passes,
    ),
]

ITEM = Training(
    name="curve8",
    title="Where Text8 would go: error (BPC) by length of training",
    about=(
        "36 layers of BELU by Muon at a rate that rises and falls to zero, in runs of several lengths. At the scale "
        "small the text is the first 74 million characters of Text8, and errors are those on 640,000 characters of its "
        "validation and test parts, from 128 places. Errors follow a power law if they lie on a line in the picture; "
        "the law knows of no floor, which a text has, so that it flatters what is far away."
    ),
    claims=CLAIMS,
    published={},
    runs=runs,
    collect=collect,
    draw=draw,
    caption=(
        "A point for each run. The line is the power law through them; 95 % of new runs lie in the band if errors "
        "scatter around it. Dashed: errors as published. If the law holds, the line goes on to one epoch: see which "
        "of them it passes. If it ends at the longest run, the law does not hold, and says nothing of longer ones."
    ),
    tables=tables,
    seeds={"quick": 1, "small": 1, "paper": 3},
)
