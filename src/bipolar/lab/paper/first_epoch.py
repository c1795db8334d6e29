"""First epoch of the paper's own networks, by the paper's recipe: where divergence is quick, it shows here.

The small scale trains the networks that are said to diverge, at the paper's sizes, for the first 100 steps of that
epoch: 36 layers of 256 units take a CPU some three seconds a step. The quick scale takes the runs of Table 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from bipolar._tools.figures import ACTIVATION_COLORS
from bipolar.lab.paper import table1, table3
from bipolar.lab.reproduce.curves import draw_losses, table_of_curves, train_curves
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Results
from bipolar.lab.reproduce.rules import end_of_run
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry
from bipolar.lab.reproduce.verdicts import Claim, Evidence, Verdict
from bipolar.lab.training.text import TextConfig

#: the steps of an epoch on Penn Treebank, of its start at the small scale, and of the run on Text8
EPOCH, START, TEXT8_STEPS = 797, 100, 200
#: runs of 36 layers on Penn Treebank, with their learning rates
DEEP: dict[str, tuple[str, float | None]] = {
    **{name: (name, None) for name in ("relu", "brelu", "elu", "belu", "selu", "bselu")},
    "selu, a tenth of the rate": ("selu", 2e-5),
}
SHALLOW, TEXT8 = "elu, 4 layers", "elu, Text8"
#: runs that diverge in the paper, on Penn Treebank
DIVERGING = ("elu", "selu", "selu, a tenth of the rate", SHALLOW)


def runs(scale: Scale) -> dict[str, TextConfig]:
    if scale == "quick":
        known = {name.removeprefix("36: "): config for name, config in table1.runs("quick").items()}
        return {name: known[name] for name in ("relu", "brelu", "elu", "belu", "selu", "bselu") if name in known}
    deep, shallow = (
        replace(table1.base("paper", layers), max_steps=START if scale == "small" else EPOCH) for layers in (36, 4)
    )
    text8 = table3.runs("paper")["elu"]
    found = {
        **{
            name: replace(deep, model=replace(deep.model, nonlinearity=nonlinearity), lr=lr)
            for name, (nonlinearity, lr) in DEEP.items()
        },
        SHALLOW: replace(shallow, model=replace(shallow.model, nonlinearity="elu")),
        TEXT8: replace(text8, data="text8-74M", lr=text8.recipe.lr, max_steps=TEXT8_STEPS, max_valid_windows=10),
    }
    return found if scale == "paper" else {name: found[name] for name in DIVERGING}


def draw(seeds: Sequence[Results]) -> Figure:
    def look(name: str) -> tuple[str, str, str]:
        activation, _, rest = name.partition(", ")
        style = {"": "--" if activation.startswith("b") else "-", "4 layers": ":"}.get(rest, "-.")
        return ACTIVATION_COLORS[activation.removeprefix("b")], style, name

    return draw_losses(seeds[0], "First epoch", look, top=8.0)


def _diverge(*names: str, quickly: bool = True) -> Callable[[Evidence], Verdict]:
    """A rule: all seeds of some runs diverge. If they need not do so quickly, the start of an epoch refutes nothing."""

    def decide(e: Evidence) -> Verdict:
        seeds = e.seeds("first_epoch")
        ends = [end_of_run(e, "first_epoch", name, "best_valid_bpc") for name in names]
        for end in ends:
            e.show(end)
        lost = sum(value == DNC for end in ends for value in end.ours)
        total = len(names) * len(seeds)
        shown = "; ".join(f"{end.name}: {', '.join(Entry([value]).text() for value in end.ours)}" for end in ends)
        reason = f"{lost} of {total} runs diverge; validation BPC by seed, {shown}"
        if lost == total:
            return Verdict("reproduced", reason)
        if not quickly and e.scale("first_epoch") != "paper":
            return Verdict("not decided", f"{reason}; {START} steps do not tell how training goes on")
        return Verdict("not decided" if lost else "not reproduced", reason)

    return decide


CLAIMS = [
    Claim(
        "elu quickly",
        "With ELU, training of the 36-layer network diverges quickly.",
        where="Figure 6",
        items=("first_epoch",),
        rule="at the paper's size and by its recipe, every seed diverges within the run; none does: refuted",
        decide=_diverge("elu"),
    ),
    Claim(
        "elu shallow",
        "With ELU, learning does not converge with 4 layers either.",
        where="Table 1",
        items=("first_epoch",),
        rule=(
            "at the paper's size and by its recipe, every seed diverges within the run; none does within the whole "
            "epoch of the paper's scale: refuted"
        ),
        decide=_diverge(SHALLOW, quickly=False),
    ),
    Claim(
        "selu quickly",
        "With SELU, training of the 36-layer network quickly diverges, even with very low learning rates.",
        where="Section on Penn Treebank",
        items=("first_epoch",),
        rule=(
            "at the paper's size and by its recipe, every seed diverges within the run, at the published rate "
            "and at a tenth of it; none does: refuted"
        ),
        decide=_diverge("selu", "selu, a tenth of the rate"),
    ),
]

ITEM = Training(
    name="first_epoch",
    title="First epoch of the paper's networks",
    about=(
        "The paper's 36 layers of 256 units and 4 of 760 on Penn Treebank, and 36 of 474 on the start of Text8, by its "
        "recipe, dropout included: the first epoch, or 200 steps on Text8. At the scale small the first 100 steps of "
        "the networks on Penn Treebank that diverge in the paper, ELU and SELU."
    ),
    claims=CLAIMS,
    published={"elu": DNC, "selu": DNC, SHALLOW: DNC, TEXT8: DNC},
    runs=runs,
    collect=train_curves,
    caption=(
        "Networks of the paper's own size, which diverge in the paper. Look for a curve that turns upwards, or that "
        "the legend calls not converged."
    ),
    draw=draw,
    tables=table_of_curves,
    seeds={"quick": 1, "small": 3, "paper": 3},
)
