"""Figure 6: training loss by activation, in RNNs of 36 layers on Penn Treebank; the runs are those of Table 1."""

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

from bipolar._tools.figures import ACTIVATION_COLORS
from bipolar.lab.paper import table1
from bipolar.lab.reproduce.curves import draw_losses, table_of_curves, train_curves
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Results
from bipolar.lab.reproduce.rules import BPC_OF_A_CURVE, decided_by, end_of_run, mean_of_curve
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict, compare, show
from bipolar.lab.training.text import TextConfig


def runs(scale: Scale) -> dict[str, TextConfig]:
    return {name.removeprefix("36: "): c for name, c in table1.runs(scale).items() if name.startswith("36: ")}


def draw(seeds: Sequence[Results]) -> Figure:
    def look(name: str) -> tuple[str, str, str]:
        plain = name.partition(",")[0]
        bipolar = plain.startswith("b")
        style = "--" if bipolar else ":" if "second moment" in name else "-"
        return ACTIVATION_COLORS[plain.removeprefix("b") if bipolar else plain], style, name

    return draw_losses(seeds[0], "36 layers, by activation", look, top=8.0)


def _faster(name: str) -> Callable[[Evidence], Verdict]:
    def decide(e: Evidence) -> Verdict:
        plain, flipped = mean_of_curve(e, "figure6", name), mean_of_curve(e, "figure6", f"b{name}")
        ends = [end_of_run(e, "figure6", kind, "last_train_bpc") for kind in (name, f"b{name}")]
        reason = (
            f"training BPC, mean over all steps: {name} {show(plain)}, b{name} {show(flipped)}; of the last steps: "
            f"{show(ends[0])} and {show(ends[1])}"
        )
        return decided_by([compare(flipped, plain, BPC_OF_A_CURVE)], "below", reason)

    return decide


def _second_moment(e: Evidence) -> Verdict:
    second, flipped, variance = (mean_of_curve(e, "figure6", name) for name in ("relu, second moment", "brelu", "relu"))
    reason = (
        f"training BPC, mean over all steps: ReLU with LSUV on the second moment {show(second)}, BReLU {show(flipped)},"
        f" ReLU with LSUV on variance {show(variance)}"
    )
    if compare(variance, flipped, BPC_OF_A_CURVE) != "above":
        return Verdict("not decided", f"{reason}: there is no gap to close")
    return decided_by([compare(second, flipped, BPC_OF_A_CURVE)], "equal", reason)


CLAIMS = [
    Claim(
        "faster",
        "BReLU trains faster than ReLU at 36 layers.",
        where="Figure 6",
        items=("figure6",),
        rule=f"the mean of its training loss over all steps is lower; margin: {BPC_OF_A_CURVE}",
        decide=_faster("relu"),
    ),
    Claim(
        "faster elu",
        "BELU trains faster than ELU at 36 layers.",
        where="Figure 6",
        items=("figure6",),
        rule=f"the mean of its training loss over all steps is lower, or ELU diverges; margin: {BPC_OF_A_CURVE}",
        decide=_faster("elu"),
    ),
    Claim(
        "second moment",
        "ReLU with LSUV on the second moment trains as BReLU does, ReLU with LSUV on variance more slowly.",
        where=OURS,
        items=("figure6",),
        rule=(
            f"the means of their training losses over all steps are equal, that of the third is higher; margin: "
            f"{BPC_OF_A_CURVE}"
        ),
        decide=_second_moment,
    ),
]

ITEM = Training(
    name="figure6",
    title="Figure 6: training loss by activation, 36 layers",
    about=table1.SECOND_MOMENT,
    claims=CLAIMS,
    published={"elu": DNC},
    runs=runs,
    collect=train_curves,
    draw=draw,
    tables=table_of_curves,
)
