"""Figure 6: training loss by activation, in RNNs of 36 layers on Penn Treebank; the runs are those of Table 1."""

import math
from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

from bipolar._tools.figures import ACTIVATION_COLORS
from bipolar.lab.paper import table1
from bipolar.lab.reproduce.curves import draw_losses, table_of_curves, train_curves
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Results
from bipolar.lab.reproduce.rules import BPC_OF_A_CURVE, decided_by, end_of_run, mean_of_curve
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict, compare
from bipolar.lab.training.text import TextConfig

#: The windows of a run whose mean losses are compared, and the share of them that counts as always.
WINDOWS, ALWAYS = 50, 0.95
#: The rule of a claim that one curve is below others at all times.
AT_ALL_TIMES = (
    f"of {WINDOWS} windows of the run, less the first tenth and those after the rival's learning rate was cut, its "
    f"mean loss is lower in at least {ALWAYS:.0%}; the claim fails at half of them or less"
)


def runs(scale: Scale) -> dict[str, TextConfig]:
    found = table1.runs(scale)
    return {name: found[f"36: {name}"] for name in (*table1.COLUMNS, *table1.AT_36)}


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
            f"training BPC, mean over all steps: {name} {plain.text()}, b{name} {flipped.text()}; of the last steps: "
            f"{ends[0].text()} and {ends[1].text()}"
        )
        return decided_by([compare(flipped, plain, BPC_OF_A_CURVE.at(e.scale("figure6")))], "below", reason)

    return decide


def _share_below(e: Evidence, name: str, rival: str) -> Entry:
    """The share of windows in which the training loss of a run is below that of another, after the first tenth.

    They count up to the first cut of the rival's learning rate. A run that diverged is above one that did not.
    """

    def value(results: Results) -> float | str | None:
        run, other = results.get(name), results.get(rival)
        if run is None or other is None or not run["train_bpc"]:
            return None
        failed, rival_failed = (r.get("status", "finished") != "finished" for r in (run, other))
        if failed or rival_failed:
            return DNC if failed and rival_failed else float(rival_failed)
        end, others = other.get("first_cut") or math.inf, dict(other["train_bpc"])
        pairs: list[tuple[float, float]] = [
            (loss, others[step]) for step, loss in run["train_bpc"] if step in others and step <= end
        ]
        size = max(1, math.ceil(len(pairs) / WINDOWS))
        windows = [pairs[start : start + size] for start in range(0, len(pairs), size)]
        windows = windows[len(windows) // 10 :]
        lower = [sum(loss - rival_loss for loss, rival_loss in window) < 0 for window in windows]
        return sum(lower) / len(lower) if lower else None

    return e.entry_of("figure6", f"{name} and {rival}", value)


def _always_below(name: str, rivals: Sequence[str]) -> Callable[[Evidence], Verdict]:
    def decide(e: Evidence) -> Verdict:
        shares = {rival: _share_below(e, name, rival) for rival in rivals}
        reason = f"share of the windows in which the training loss of {name} is lower: " + ", ".join(
            f"{share.text(2)} ({rival})" for rival, share in shares.items()
        )
        means = [share.mean for share in shares.values() if share.mean is not None]
        if len(means) == len(shares) and min(means) >= ALWAYS:
            return Verdict("reproduced", reason)
        return Verdict("not reproduced" if any(mean <= 0.5 for mean in means) else "not decided", reason)

    return decide


def _second_moment(e: Evidence) -> Verdict:
    second, flipped, variance = (mean_of_curve(e, "figure6", name) for name in ("relu, second moment", "brelu", "relu"))
    reason = (
        f"training BPC, mean over all steps: ReLU with LSUV on the second moment {second.text()}, BReLU "
        f"{flipped.text()}, ReLU with LSUV on variance {variance.text()}"
    )
    margin = BPC_OF_A_CURVE.at(e.scale("figure6"))
    if compare(variance, flipped, margin) != "above":
        return Verdict("not decided", f"{reason}: there is no gap to close")
    return decided_by([compare(second, flipped, margin)], "equal", reason)


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
        "always below",
        "The training loss of BReLU is below that of ReLU at all times.",
        where="Figure 6",
        items=("figure6",),
        rule=AT_ALL_TIMES,
        decide=_always_below("brelu", ("relu",)),
    ),
    Claim(
        "lowest",
        "The training loss of BELU is the lowest of all.",
        where="Figure 6",
        items=("figure6",),
        rule=f"against each of ReLU, BReLU and ELU: {AT_ALL_TIMES}",
        decide=_always_below("belu", ("relu", "brelu", "elu")),
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
