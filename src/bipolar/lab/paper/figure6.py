"""Figure 6: training loss by activation, in RNNs of 36 layers on Penn Treebank; the runs are those of Table 1."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from bipolar._tools.figures import ACTIVATION_COLORS
from bipolar.lab.paper import table1
from bipolar.lab.reproduce.comparisons import Order
from bipolar.lab.reproduce.curves import draw_losses, table_of_curves, train_curves
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Results
from bipolar.lab.reproduce.rules import BPC_OF_A_CURVE, decided_by, end_of_run, mean_of_curve
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, MissingError, Verdict
from bipolar.lab.training.text import TextConfig

#: The windows of a run whose mean losses are compared, and the share of them that counts as always.
WINDOWS, ALWAYS = 50, 0.95
#: The rules of claims that one curve is below another on average, and below others at all times.
FASTER = (
    f"the mean of its training loss over all steps is lower, or {{}} diverges in more seeds; margin: {BPC_OF_A_CURVE}"
)
AT_ALL_TIMES = (
    f"of {WINDOWS} windows of the run, less the first tenth and those after the rival's learning rate was cut, its "
    f"mean loss is lower in at least {ALWAYS:.0%}, and lower over all of them by the margin; the claim fails if it is "
    f"lower in half of them or fewer; margin: {BPC_OF_A_CURVE}"
)


def runs(scale: Scale) -> dict[str, TextConfig]:
    found = table1.runs(scale)
    return {name.removeprefix("36: "): config for name, config in found.items() if name.startswith("36: ")}


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
        return decided_by([e.compare(flipped, plain, BPC_OF_A_CURVE.at(e.scale("figure6")))], "below", reason)

    return decide


def _gaps(run: Mapping[str, Any], rival: Mapping[str, Any]) -> list[float]:
    """The training loss of a run less a rival's, by windows: after the first tenth, up to the rival's first cut."""
    end, losses = rival.get("first_cut") or math.inf, dict(rival["train_bpc"])
    gaps = [loss - losses[step] for step, loss in run["train_bpc"] if step in losses and step <= end]
    if not gaps:
        raise MissingError("two training curves of figure6 have no step in common")
    size = math.ceil(len(gaps) / WINDOWS)
    windows = [gaps[start : start + size] for start in range(0, len(gaps), size)]
    return [sum(window) / len(window) for window in windows[len(windows) // 10 :]]


def _contest(e: Evidence, name: str, rival: str) -> tuple[Entry, Order]:
    """The share of windows in which the loss of a run is below a rival's, by seed, and its place over all of them.

    A run that diverged is above a rival that did not in all windows.
    """
    means, rival_means = (mean_of_curve(e, "figure6", kind) for kind in (name, rival))
    shares: list[float | str] = []
    gaps_of_seeds: list[float | str] = []
    for results, mean, rival_mean in zip(e.seeds("figure6"), means.ours, rival_means.ours, strict=True):
        if DNC in (mean, rival_mean):
            shares.append(DNC if mean == rival_mean else float(rival_mean == DNC))
            gaps_of_seeds.append(DNC if mean == DNC else 0.0)
        else:
            gaps = _gaps(results[name], results[rival])
            shares.append(sum(gap < 0 for gap in gaps) / len(gaps))
            gaps_of_seeds.append(sum(gaps) / len(gaps))
    of_rival = Entry([DNC if mean == DNC else 0.0 for mean in rival_means.ours], seeds=means.seeds, name=rival)
    gap = Entry(gaps_of_seeds, seeds=means.seeds, name=name, quantity=f"training BPC less that of {rival}")
    margin = BPC_OF_A_CURVE.at(e.scale("figure6"))
    return Entry(shares), e.compare(gap, of_rival, margin)


def _always_below(name: str, rivals: Sequence[str]) -> Callable[[Evidence], Verdict]:
    def decide(e: Evidence) -> Verdict:
        contests = {rival: _contest(e, name, rival) for rival in rivals}
        reason = f"share of the windows in which the training loss of {name} is lower: " + ", ".join(
            f"{share.text(2)} ({rival})" for rival, (share, _) in contests.items()
        )
        orders = [order for _, order in contests.values()]
        means = [share.mean for share, _ in contests.values() if share.mean is not None]
        if len(means) == len(contests) and min(means) >= ALWAYS and set(orders) == {"below"}:
            return Verdict("reproduced", reason)
        if any(mean <= 0.5 for mean in means):
            return Verdict("not reproduced", reason)
        return Verdict("not decided", f"{reason}; over all of them it is {', '.join(orders)}")

    return decide


def _second_moment(e: Evidence) -> Verdict:
    second, flipped, variance = (mean_of_curve(e, "figure6", name) for name in ("relu, second moment", "brelu", "relu"))
    reason = (
        f"training BPC, mean over all steps: ReLU with LSUV on the second moment {second.text()}, BReLU "
        f"{flipped.text()}, ReLU with LSUV on variance {variance.text()}"
    )
    margin = BPC_OF_A_CURVE.at(e.scale("figure6"))
    if e.compare(variance, flipped, margin) != "above":
        return Verdict("not decided", f"{reason}: there is no gap to close")
    return decided_by([e.compare(second, flipped, margin)], "equal", reason)


CLAIMS = [
    Claim(
        "faster",
        "BReLU trains faster than ReLU at 36 layers.",
        where="Figure 6",
        items=("figure6",),
        rule=FASTER.format("ReLU"),
        decide=_faster("relu"),
    ),
    Claim(
        "faster elu",
        "BELU trains faster than ELU at 36 layers.",
        where="Figure 6",
        items=("figure6",),
        rule=FASTER.format("ELU"),
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
    caption=(
        "Solid: plain; dashed: bipolar, in the same colour; dotted: plain, with LSUV on the second moment. Look "
        "whether the dashed curve runs below the solid one, and the dotted one with it."
    ),
    draw=draw,
    tables=table_of_curves,
)
