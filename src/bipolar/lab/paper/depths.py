"""A study: 4, 36 and 144 layers of equal size, trained by the fast recipe for equal time.

The paper's networks of all depths have 4.75 million parameters, and 200 epochs. Here each has the same time, of which a
step of a deep network takes more: does depth pay, and at what price?
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from bipolar.lab.paper import table1, table2
from bipolar.lab.reproduce.contest import seconds_of_a_step
from bipolar.lab.reproduce.curves import shade
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Outcome, Results
from bipolar.lab.reproduce.rules import BPC, decided_if
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import flat_table
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.lab.training.update import Update

#: The layers; the steps of the small scale that take the same time, some 20 minutes of a core that multiplies in
#: bfloat16 by AVX512.
STEPS = {4: 2220, 36: 1730, 144: 1550}
#: The paper's scale has so many times these steps, some 20 epochs; with dropout for as many.
LONGER = 10
#: Times are equal up to this share: the machine is never quite idle.
UNEVEN = 0.15


def runs(scale: Scale) -> dict[str, TextConfig]:
    return {f"{layers} layers": _run(layers, scale) for layers in STEPS}


def _run(layers: int, scale: Scale) -> TextConfig:
    """The run of a depth; its rate is inverse to the width."""
    if scale == "quick":
        model, update = TextModel(layers, {4: 96, 36: 32, 144: 16}[layers]), Update(recipe="fast", optimizer="adam")
        quick = TextConfig("python-docs", model, update=update, max_steps=6, batch_size=8, window=10, log_every=2)
        return replace(quick, lr=1e-3, max_valid_windows=2)
    first, (width, _) = table2.FIRST, table1.SHAPES[layers]
    rate = float(first.lr or 0.0) * first.model.hidden_size / width
    model = replace(first.model, num_layers=layers, hidden_size=width)
    steps = STEPS[layers] if scale == "small" else LONGER * STEPS[layers]
    config = replace(first, model=model, lr=rate, max_steps=steps, look_every=steps // 4)
    if scale == "small":
        return replace(config, max_valid_windows=30)
    return replace(config, model=replace(model, dropout=None, recurrent_dropout=None))


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    found = {}
    for name, outcome in outcomes.items():
        pace, steps = seconds_of_a_step(outcome.metrics), outcome.result["step"]
        looks = [
            (row["step"] * pace / 60, min(row["valid_bpc"], row.get("averaged_valid_bpc", row["valid_bpc"])))
            for row in outcome.metrics
            if "valid_bpc" in row and pace is not None
        ]
        found[name] = {
            "width": outcome.config["model"]["hidden_size"],
            "steps": steps,
            "minutes": None if pace is None else pace * steps / 60,
            "valid_bpc": outcome.result["best_valid_bpc"] if outcome.converged else DNC,
            "test_bpc": outcome.result["test_bpc"] if outcome.converged else DNC,
            "looks": looks,
        }
    return found


def draw(seeds: Sequence[Results]) -> Figure:
    """The validation error against the time of training, a line for each run."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(seeds[0]):
        for number, seed in enumerate(seeds):
            looks = seed.get(name, {}).get("looks", [])
            minutes, errors = zip(*looks, strict=True) if looks else ((), ())
            label = None if number else f"{name} of {seed[name]['width']} units"
            axes.plot(minutes, errors, marker="o", color=shade(place, len(STEPS)), label=label)
    axes.set(xlabel="minutes of training, validation not counted", ylabel="validation BPC")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _deeper_is_better(deep: str, shallow: str) -> Callable[[Evidence], Verdict]:
    """A rule: the deeper network ends below the other."""

    def decide(e: Evidence) -> Verdict:
        took = [e.entry("depths", name, "minutes").mean or 0.0 for name in (deep, shallow)]
        if max(took) > (1 + UNEVEN) * min(took):
            minutes = f"{took[0]:.0f} and {took[1]:.0f} minutes"
            return Verdict("not decided", f"the runs of {deep} and {shallow} did not take equal time: {minutes}")
        ours, theirs = (e.entry("depths", name, "valid_bpc") for name in (deep, shallow))
        order = e.compare(ours, theirs, BPC.at(e.scale("depths")))
        reason = f"validation BPC after equal time: {deep} {ours.text()}, {shallow} {theirs.text()}"
        return decided_if(order == "below", reason, order)

    return decide


def _claim(deep: int, shallow: int) -> Claim:
    return Claim(
        f"{deep} layers at equal time",
        f"At equal parameters and equal time, and rates inverse to the width, {deep} layers reach a lower error than "
        f"{shallow}.",
        where=OURS,
        items=("depths",),
        rule=(
            f"the steps of both took the same time within {UNEVEN:.0%}, and the validation error of {deep} layers is "
            f"below that of {shallow}; margin: {BPC}"
        ),
        decide=_deeper_is_better(f"{deep} layers", f"{shallow} layers"),
    )


ITEM = Training(
    name="depths",
    title="Depth at equal time: error (BPC) on Penn Treebank",
    about=(
        "Networks of BELU with 4, 36 and 144 layers, 4.75 million parameters each, by the fast recipe: Adam at a rate "
        "that is inverse to the width, a rule that the item recipe36 does not confirm: its wider network did no better "
        "at a lower rate. So 144 layers may be behind because of their rate, the highest here. Steps are chosen to "
        "take equal time on one core; minutes are those of the steps alone, and at the scale small errors those on "
        "192,000 characters of the validation and test parts, from 128 places. At the scale quick the networks are "
        "tiny, and learn nothing yet."
    ),
    claims=[_claim(36, 4), _claim(144, 36)],
    published={},
    runs=runs,
    collect=collect,
    draw=draw,
    caption=(
        "A point for each validation, a line for each depth: the lower at its end, the better for the same time, at "
        "rates by the width, which need not be the best ones."
    ),
    tables=lambda seeds: [
        flat_table(
            "By depth",
            seeds,
            {
                "width": "units",
                "steps": "steps",
                "minutes": "minutes",
                "valid_bpc": "validation BPC",
                "test_bpc": "test BPC",
            },
        )
    ],
    seeds={"quick": 1, "small": 1, "paper": 3},
)
