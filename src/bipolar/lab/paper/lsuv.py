"""Training with LSUV and without it, of two depths, with skips and without; the runs with LSUV are those of Figure 5.

Without LSUV the weights keep their random start, which has the gain of the activation already: it is right in
expectation for a stack without skips, where LSUV is right for the stack at hand.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from bipolar.lab.paper import figure5
from bipolar.lab.reproduce.curves import draw_panels, shade, table_of_curves, train_curves
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.rules import BPC, end_of_run
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.verdicts import Claim, Evidence, Verdict
from bipolar.lab.training.text import TextConfig

DEPTHS = (4, 36)
SKIPS = ("no skips", "skips")


def runs(scale: Scale) -> dict[str, TextConfig]:
    found = {}
    for depth in DEPTHS:
        for skips in SKIPS:
            config = figure5.runs(scale)[f"{depth} layers, {skips}"]
            found[f"{depth} layers, LSUV, {skips}"] = config
            found[f"{depth} layers, no LSUV, {skips}"] = replace(config, model=replace(config.model, lsuv="none"))
    return found


def draw(seeds: Sequence[Results]) -> Figure:
    def look(name: str) -> dict[str, Any]:
        depth, lsuv, _ = name.split(", ")
        color = shade(DEPTHS.index(int(depth.split()[0])), len(DEPTHS))
        return {"label": f"{depth}, {lsuv}", "color": color, "linestyle": "-" if lsuv == "LSUV" else "--"}

    return draw_panels(seeds[0], SKIPS, lambda name: name.rpartition(", ")[2], look, top=8.0)


def _lsuv_helps_depth(e: Evidence) -> Verdict:
    ends = {
        (depth, lsuv, skips): end_of_run(e, "lsuv", f"{depth} layers, {lsuv}, {skips}", "last_train_bpc")
        for depth in DEPTHS
        for lsuv in ("LSUV", "no LSUV")
        for skips in SKIPS
    }
    reason = "training BPC at the end, with LSUV and without: " + "; ".join(
        f"{depth} layers, {skips} {ends[depth, 'LSUV', skips].text()} and {ends[depth, 'no LSUV', skips].text()}"
        for depth in reversed(DEPTHS)
        for skips in SKIPS
    )
    margin = BPC.at(e.scale("lsuv"))
    orders = [e.compare(ends[36, "LSUV", skips], ends[36, "no LSUV", skips], margin) for skips in SKIPS]
    if "below" in orders and "above" not in orders:
        return Verdict("reproduced", reason)
    return Verdict("not decided" if "unclear" in orders or "below" in orders else "not reproduced", reason)


CLAIMS = [
    Claim(
        "deeper with lsuv",
        "LSUV lets deeper stacks train.",
        where="Section on deeply stacked RNNs",
        items=("lsuv",),
        rule=(
            "at 36 layers the training loss is lower with LSUV than without, with skips or without them, and higher in "
            f"neither case; margin: {BPC}"
        ),
        decide=_lsuv_helps_depth,
    ),
]

ITEM = Training(
    name="lsuv",
    title="Training loss with LSUV and without, by depth",
    about=(
        "Bipolar ELU, the same width at both depths; a skip connection around every 4 layers, or none. Without LSUV "
        "the weights keep their random start, which has the gain of the activation already: a better start than an "
        "arbitrary scale, but not measured, and blind to skips."
    ),
    claims=CLAIMS,
    published={"claim": "LSUV allows training to work in deeper stacks; without skips it is not enough"},
    runs=runs,
    collect=train_curves,
    caption=(
        "Solid: with LSUV; dashed: without. Lighter is deeper. Look for a dashed light curve above the solid one, or "
        "one that ends early: deep stacks that need LSUV."
    ),
    draw=draw,
    tables=table_of_curves,
)
