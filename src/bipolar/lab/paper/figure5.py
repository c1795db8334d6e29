"""Figure 5: training loss by depth, with and without skip connections; bipolar ELU, the same width at every depth."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from bipolar.lab.paper import table1
from bipolar.lab.reproduce.curves import draw_panels, shade, table_of_curves, train_curves
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.rules import BPC, decided_if, end_of_run
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.verdicts import Claim, Evidence, Verdict
from bipolar.lab.training.text import TextConfig, TextModel

DEPTHS = {"quick": (4, 36), "small": (4, 8, 16, 36), "paper": (4, 8, 16, 24, 36)}


def runs(scale: Scale) -> dict[str, TextConfig]:
    base = {
        "quick": TextConfig(
            "python-docs", max_steps=60, lr=1e-3, batch_size=32, window=25, max_valid_windows=10, patience=60
        ),
        "small": TextConfig("ptb", max_steps=400, lr=table1.RATE_OF_A_QUARTER, patience=400),
        "paper": TextConfig("ptb", max_epochs=20),
    }[scale]
    width = {"quick": 64, "small": 64, "paper": 256}[scale]
    return {
        f"{depth} layers, {'skips' if skip else 'no skips'}": replace(
            base, model=TextModel(depth, width, skip_every=skip)
        )
        for skip in (None, 4)
        for depth in DEPTHS[scale]
    }


def draw(seeds: Sequence[Results]) -> Figure:
    def look(name: str) -> dict[str, Any]:
        depths = sorted({int(run.split()[0]) for run in seeds[0]})
        return {"color": shade(depths.index(int(name.split()[0])), len(depths)), "label": name.partition(",")[0]}

    return draw_panels(seeds[0], ("no skips", "skips"), lambda name: name.partition(", ")[2], look, top=8.0)


def _skips_help_depth(e: Evidence) -> Verdict:
    without, with_, shallow = (
        end_of_run(e, "figure5", name, "last_train_bpc")
        for name in ("36 layers, no skips", "36 layers, skips", "4 layers, skips")
    )
    reason = (
        f"training BPC at the end: 36 layers {without.text()} without skips and {with_.text()} with, 4 layers "
        f"with skips {shallow.text()}"
    )
    margin = BPC.at(e.scale("figure5"))
    deep, shallow_order = e.compare(with_, without, margin), e.compare(with_, shallow, margin)
    return decided_if(deep == "below" and shallow_order in ("below", "equal"), reason, deep, shallow_order)


CLAIMS = [
    Claim(
        "skips",
        "Skip connections let deep stacks train: without them depth slows training down.",
        where="Figure 5",
        items=("figure5",),
        rule=(
            f"at 36 layers the training loss is lower with skips than without, and not above that of 4 layers with "
            f"skips; margin: {BPC}"
        ),
        decide=_skips_help_depth,
        least="quick",
    ),
]

ITEM = Training(
    name="figure5",
    title="Figure 5: training loss by depth, with and without skips",
    about="Bipolar ELU, the same width at every depth; a skip connection around every 4 layers, or none.",
    claims=CLAIMS,
    published={"claim": "without skips deep stacks learn more slowly, with skips they do not"},
    runs=runs,
    collect=train_curves,
    caption=(
        "Lighter is deeper. Without skips the light curves should stay above the dark ones, with skips they should "
        "not: there depth does no harm."
    ),
    draw=draw,
    tables=table_of_curves,
)
