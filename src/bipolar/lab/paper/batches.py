"""A study: batch norm and no norm by the size of the batch, and on batches that are no fair sample.

Batch norm takes the mean and the deviation of a batch for those of the data. The smaller the batch, the noisier they
are; with two classes to a batch they are of other data than the test's. A network without norms has no such statistics.
Both are trained by the fast recipe, with batch norm also at eight times the rate, which suits it better. The rate goes
with the square root of the batch, up to the size it was chosen for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from bipolar.lab.paper import normfree, table5
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import Outcome, Results
from bipolar.lab.reproduce.rules import ERROR, decided_by
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, Table, over
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict
from bipolar.lab.training.images import ImageConfig, ImageModel
from bipolar.lab.training.update import Update

SIZES = (2, 8, 32, 128, 512)
#: The size and the classes of an unfair batch.
UNFAIR, CLASSES = 128, 2
#: The peak of the rate, and the batch that it was chosen for.
PEAK, OF_BATCH = 0.05, 256
BATCH_NORM, NONE, COLORS = normfree.BATCH_NORM, normfree.NONE, normfree.COLORS
FASTER = f"{BATCH_NORM}, eight times the rate"
#: The factor of the rate, and the colour, of each.
KINDS = {BATCH_NORM: (1, COLORS[BATCH_NORM]), FASTER: (8, "#7fb3d8"), NONE: (1, COLORS[NONE])}
FEW = f"{UNFAIR}, {CLASSES} classes"


def base(scale: Scale) -> ImageConfig:
    """The network and the length of a run: everything but the norm and the batch."""
    if scale == "quick":
        return replace(table5.base("quick", "wrn"), max_epochs=2, lr=None)
    model = ImageModel("wrn", 10, 1, dropout=0.0)
    if scale == "small":
        return ImageConfig(model=model, max_epochs=1, train_images=10_000)
    return ImageConfig(model=replace(model, depth=28, widen_factor=10), max_epochs=20)


def runs(scale: Scale) -> dict[str, ImageConfig]:
    config = base(scale)
    sizes = {str(size): size for size in ((8, 32) if scale == "quick" else SIZES)}
    found = {}
    for name, size in (sizes | ({} if scale == "quick" else {FEW: UNFAIR})).items():
        for kind, (factor, _) in KINDS.items():
            found[f"{kind}: {name}"] = replace(
                config,
                model=replace(
                    config.model,
                    activation="elu",
                    norm=None if kind == NONE else "batch",
                    lsuv="second_moment",
                    at="activation",
                ),
                update=Update(recipe="fast"),
                lr=factor * PEAK * math.sqrt(min(1.0, size / OF_BATCH)),
                batch_size=size,
                classes_per_batch=CLASSES if name == FEW else None,
            )
    return found


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {}
    for name, outcome in outcomes.items():
        norm, _, batch = name.partition(": ")
        table.setdefault(norm, {})[batch] = table5.summary(outcome)
    return table


def tables(seeds: Sequence[Results]) -> list[Table]:
    batches = list(next(iter(seeds[0].values())))
    rows = {norm: [Entry(over(seeds, norm, batch, "test_error")) for batch in batches] for norm in seeds[0]}
    return [Table("Test error (%) by the batch", batches, rows, digits=1)]


def draw(seeds: Sequence[Results]) -> Figure:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    batches = list(next(iter(seeds[0].values())))
    for norm, row in seeds[0].items():
        entries = {batch: Entry(over(seeds, norm, batch, "test_error")) for batch in row}
        for batch, entry in entries.items():
            axes.plot([batches.index(batch)] * len(entry.numbers), entry.numbers, "o", color=KINDS[norm][1], alpha=0.5)
        fair = [(batches.index(b), e.mean) for b, e in entries.items() if b != FEW and e.mean is not None]
        axes.plot(*zip(*fair, strict=True), "-", color=KINDS[norm][1], label=norm)
        unfair = entries[FEW].mean if FEW in entries else None
        if unfair is not None:
            axes.plot([batches.index(FEW)], [unfair], "_", color=KINDS[norm][1], markersize=24)
    axes.set_xticks(range(len(batches)), batches)
    axes.set(xlabel="images to a batch", ylabel="test error (%)", ylim=(0, 100))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _ahead(e: Evidence, batch: str) -> Verdict:
    """A rule: without norm the error is lower than with batch norm at the better of its rates."""
    without, *norms = (e.entry("batches", kind, batch, "test_error") for kind in (NONE, BATCH_NORM, FASTER))
    norm = min(norms, key=lambda entry: (entry.failed, entry.mean or 0.0))
    reason = f"test error (%) on batches of {batch}: without norm {without.text(1)}, with batch norm {norm.text(1)}"
    return decided_by([e.compare(without, norm, ERROR.at(e.scale("batches")))], "below", reason)


CLAIMS = [
    Claim(
        "small batches",
        "On batches of 2 images a network without norms is ahead of itself with batch norm.",
        where=OURS,
        items=("batches",),
        rule=f"the test error without norm is lower than with batch norm at the better of two rates; margin: {ERROR}",
        decide=lambda e: _ahead(e, "2"),
    ),
    Claim(
        "unfair batches",
        "On batches of two classes a network without norms is ahead of itself with batch norm.",
        where=OURS,
        items=("batches",),
        rule=f"the test error without norm is lower than with batch norm at the better of two rates; margin: {ERROR}",
        decide=lambda e: _ahead(e, FEW),
    ),
]

ITEM = Training(
    name="batches",
    title="Batch norm and no norm by the batch: test error (%)",
    about=(
        "A residual network by the fast recipe, each run over as many images. Two classes: the classes are dealt into "
        "pairs, anew in each epoch, and each batch has images of one pair. Without norm each filter is pinned at the "
        "norm that LSUV gave it. The rate goes with the square root of the batch, up to 256."
    ),
    claims=CLAIMS,
    published={},
    runs=runs,
    collect=collect,
    caption=(
        "Points are seeds, lines go through their means. Blue: batch norm, pale at eight times the rate; orange: no "
        "norm. Look at the left end, where batches are small, and at the right, where a batch has two classes alone."
    ),
    draw=draw,
    tables=tables,
)
