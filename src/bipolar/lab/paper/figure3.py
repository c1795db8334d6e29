"""Figure 3: errors of oriented response networks without batch norm, by epoch; the runs are those of Table 5."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bipolar._tools.figures import ACTIVATION_COLORS
from bipolar.lab.paper import table5
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Outcome, Results
from bipolar.lab.reproduce.rules import ERROR, decided_by, entry_of_search
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, flat_table
from bipolar.lab.reproduce.verdicts import Claim, Evidence, MissingError, Verdict
from bipolar.lab.training.images import ImageConfig


def runs(scale: Scale) -> dict[str, ImageConfig]:
    found = table5.runs(scale)
    return {name: found[f"orn: {name}"] for name in table5.ACTIVATIONS if f"orn: {name}" in found}


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Errors in per cent after each epoch."""
    return {
        name: {
            "status": outcome.result["status"],
            "lr": outcome.result.get("lr", outcome.config["lr"]),
            **{
                metric: [row[metric] for row in outcome.metrics if "train_error" in row]
                for metric in ("train_error", "test_error")
            },
        }
        for name, outcome in outcomes.items()
    }


def draw(seeds: Sequence[Results]) -> Figure:
    curves = seeds[0]
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, metric, title in zip(panels, ("train_error", "test_error"), ("training", "test"), strict=True):
        for name, run in curves.items():
            end = "" if run["status"] == "finished" else ", did not converge"
            label = f"{name} (learning rate {run['lr']:g}{end})"
            color, style = ACTIVATION_COLORS[name.removeprefix("b")], "--" if name.startswith("b") else "-"
            axes.plot(range(1, len(run[metric]) + 1), run[metric], style, marker=".", color=color, label=label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="epoch", title=f"{title} error")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel="error (%)", ylim=(0, None))
    panels[0].legend(frameon=False, fontsize="small")
    return figure


def _mean_error(e: Evidence, name: str) -> Entry:
    """The mean training error of a run over all its epochs: the faster it falls, the lower."""

    def value(results: Results) -> float | str | None:
        run = results.get(name)
        if run is None or run["status"] != "finished":
            return None if run is None else DNC
        errors = run["train_error"]
        return float(sum(errors) / len(errors)) if errors else None

    return entry_of_search(e, "figure3", f"{name} / train_error", value)


def _faster(e: Evidence) -> Verdict:
    runs = e.seeds("figure3")[0]
    pairs = {name: (_mean_error(e, name), _mean_error(e, f"b{name}")) for name in ("relu", "elu") if f"b{name}" in runs}
    if not pairs:
        raise MissingError("figure3 has no pair of a plain and a bipolar run")
    reason = "training error (%), mean over all epochs, plain and bipolar: " + "; ".join(
        f"{name} {plain.text(1)} and {flipped.text(1)}" for name, (plain, flipped) in pairs.items()
    )
    margin = ERROR.at(e.scale("figure3"))
    return decided_by([e.compare(flipped, plain, margin) for plain, flipped in pairs.values()], "below", reason)


CLAIMS = [
    Claim(
        "faster images",
        "On CIFAR-10 bipolar activations bring a faster drop of the training error.",
        where="Figure 3, abstract, conclusion",
        items=("figure3",),
        rule=f"the mean of the training error over all epochs is lower for every bipolar version; margin: {ERROR}",
        decide=_faster,
    ),
]

ITEM = Training(
    name="figure3",
    title="Figure 3: errors of an oriented response network without batch norm, by epoch",
    about="The runs of Table 5, by epoch.",
    claims=CLAIMS,
    published={"last test error (%)": {name: table5.PUBLISHED["orn"][name] for name in table5.ACTIVATIONS}},
    runs=runs,
    collect=collect,
    caption=(
        "Solid: plain; dashed: bipolar, in the same colour; the legend has the rates. Look whether the dashed curve "
        "falls faster."
    ),
    draw=draw,
    tables=lambda seeds: [
        flat_table("The learning rate that the search found", seeds, {"lr": "learning rate", "status": "status"}, 4)
    ],
)
