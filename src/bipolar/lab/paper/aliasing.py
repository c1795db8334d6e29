"""A study: did ELU diverge in the paper because of an addition in place?

The code released with the paper (github.com/larspars/word-rnn) adds the skip in place to the block's output. That
output shares memory with the stored output of ELU, from which ELU's derivative is computed; the BELU module returns a
copy. For the same reason the gradient that comes back through time never enters the skip. This is a reading of public
code, backed by a simulation, not a proof of what happened.

The runs have 36 layers: ELU and BELU with right gradients, ELU with its derivative taken after the skip, and both with
the gradient through time kept out of the skip.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from bipolar._tools.figures import ACTIVATION_COLORS
from bipolar.lab.paper import table1
from bipolar.lab.reproduce.comparisons import Margin
from bipolar.lab.reproduce.curves import draw_losses, table_of_curves, train_curves
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Results
from bipolar.lab.reproduce.rules import decided_if, end_of_run
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict
from bipolar.lab.training.text import TextConfig

STYLES = {"right": "-", "after skip": ":", "not through time": "--"}
RUNS = (
    ("elu", "right"),
    ("belu", "right"),
    ("elu", "after skip"),
    ("elu", "not through time"),
    ("belu", "not through time"),
)


def runs(scale: Scale) -> dict[str, TextConfig]:
    base = table1.base(scale, 36)
    rates = {"dropout": 0.0, "recurrent_dropout": 0.0, "block_dropout": 0.0}
    found = {}
    for nonlinearity, gradient in RUNS:
        changes: dict[str, Any] = {"nonlinearity": nonlinearity, "gradient": gradient} | rates
        config = replace(base, model=replace(base.model, **changes))
        found[f"{nonlinearity}, {gradient}"] = replace(config, max_steps=300) if scale == "small" else config
    return found


def draw(seeds: Sequence[Results]) -> Figure:
    def look(name: str) -> tuple[str, str, str]:
        nonlinearity, _, gradient = name.partition(", ")
        # ELU and BELU may share a line style here, so BELU has a darker colour instead of dashes
        return (
            ACTIVATION_COLORS["elu"] if nonlinearity == "elu" else "#7a3500",
            STYLES[gradient],
            f"{nonlinearity}, gradient {gradient}",
        )

    return draw_losses(seeds[0], "36 layers: the gradient of a skip added in place", look, top=10.0)


def _aliasing(e: Evidence) -> Verdict:
    right, belu, wrong = (
        end_of_run(e, "aliasing", name, "best_valid_bpc") for name in ("elu, right", "belu, right", "elu, after skip")
    )
    reason = (
        f"validation BPC: ELU with right gradients {right.text()}, BELU {belu.text()}, ELU with its derivative taken "
        f"after the skip {wrong.text()}"
    )
    alike = e.compare(right, belu, Margin(0.05, 0.05, "BPC"))
    worse = e.compare(wrong, right, Margin(0.2, 0.2, "BPC"))
    return decided_if(alike == "equal" and worse == "above", reason, alike, worse)


CLAIMS = [
    Claim(
        "aliasing",
        "ELU need not diverge: with right gradients it trains as BELU does, with its derivative taken after a skip "
        "that was added in place it does not.",
        where=OURS,
        items=("aliasing",),
        rule=(
            "the validation errors of ELU and BELU are equal to within 0.05 BPC; with the mistake that of ELU is "
            "higher by 0.2, or it does not converge"
        ),
        decide=_aliasing,
        least="quick",
    ),
]

ITEM = Training(
    name="aliasing",
    title="ELU and BELU, with right gradients and with those of a skip added in place",
    about=(
        "In the code released with the paper (github.com/larspars/word-rnn) the skip is added in place into the output "
        "of a block. Right: the gradient as it should be. After skip: ELU's derivative is taken from its output after "
        "the skip was added to it, as there. Not through time: the gradient that comes back through time does not "
        "enter the skip, as there."
    ),
    claims=CLAIMS,
    published={"elu": DNC, "belu": "converges"},
    runs=runs,
    collect=train_curves,
    caption=(
        "ELU is bright, BELU dark. Solid: right gradients, and the two should run together. Dotted: the derivative of"
        " ELU taken after the skip was added. Dashed: a gradient that does not enter the skip through time. Look "
        "which curves leave the solid ones."
    ),
    draw=draw,
    tables=table_of_curves,
)
