"""A study: a residual network with batch norm and without, in as many steps, by several recipes.

The paper says that bipolar activations and LSUV alleviate the need for normalisation layers. With plain SGD, networks
without norms end behind. The fast recipe has Muon, which bears higher rates, and keeps each filter at the norm that
LSUV gave it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from bipolar.lab.paper import table5
from bipolar.lab.reproduce.comparisons import Order
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import Outcome, Results
from bipolar.lab.reproduce.points import draw_points
from bipolar.lab.reproduce.rules import ERROR, decided_by, lowest
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Table, flat_table
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict
from bipolar.lab.training.images import ImageConfig, ImageModel
from bipolar.lab.training.update import OptimizerName, Update

BATCH_NORM, NONE = "batch norm", "no norm"
#: The rate of learned gains, as a share of the rate.
GAIN = 0.2
COLORS = {BATCH_NORM: "#1f77b4", NONE: "#d95f02"}


@dataclass(frozen=True)
class Variant:
    """A network and the way it is trained."""

    activation: str
    optimizer: OptimizerName
    lr: float
    pin: bool = False
    clip: float | None = None
    #: the rate of learned gains, as a share of the rate
    gain: float | None = None
    #: whether LSUV centres the input of every activation
    centre: bool = False


VARIANTS = {
    f"{BATCH_NORM}, ReLU, SGD": Variant("relu", "sgd", 0.1),
    f"{BATCH_NORM}, ELU, Muon": Variant("elu", "muon", 0.05),
    **{
        f"{BATCH_NORM}, ELU, Muon at {times} the rate": Variant("elu", "muon", lr)
        for times, lr in (("twice", 0.1), ("four times", 0.2), ("eight times", 0.4), ("sixteen times", 0.8))
    },
    f"{NONE}, ReLU, SGD": Variant("relu", "sgd", 0.05, clip=1.0),
    f"{NONE}, ELU, SGD": Variant("elu", "sgd", 0.05, clip=1.0),
    f"{NONE}, ELU, Muon": Variant("elu", "muon", 0.05),
    f"{NONE}, ReLU, Muon, pinned": Variant("relu", "muon", 0.05, pin=True),
    f"{NONE}, ELU, Muon, pinned": Variant("elu", "muon", 0.05, pin=True),
    f"{NONE}, BELU, Muon, pinned": Variant("belu", "muon", 0.05, pin=True),
    f"{NONE}, BELU, Muon, pinned, gains, centred": Variant("belu", "muon", 0.05, pin=True, gain=GAIN, centre=True),
}
#: The two recipes that a claim sets side by side with the same optimiser.
WITH_SGD = (f"{NONE}, ReLU, SGD", f"{BATCH_NORM}, ReLU, SGD")


def base(scale: Scale) -> ImageConfig:
    """The network and the length of a run: everything but the recipe."""
    if scale == "quick":
        return replace(table5.base("quick", "wrn"), lr=None)
    if scale == "small":
        return ImageConfig(model=ImageModel("wrn", 10, 1, dropout=0.0), batch_size=250, max_epochs=2)
    return ImageConfig(model=ImageModel("wrn", 28, 10), batch_size=250, max_epochs=50)


def recipes(scale: Scale) -> dict[str, ImageConfig]:
    """The runs of all variants."""
    config = base(scale)
    found = {}
    for name, variant in VARIANTS.items():
        model = replace(
            config.model,
            activation=variant.activation,
            norm="batch" if name.startswith(BATCH_NORM) else None,
            lsuv="second_moment",
            at="activation",
            centre=variant.centre,
        )
        update = Update(recipe="fast", optimizer=variant.optimizer, clip=variant.clip)
        found[name] = replace(config, model=model, update=update, lr=variant.lr, pin=variant.pin, gain=variant.gain)
    return found


def runs(scale: Scale) -> dict[str, ImageConfig]:
    found = recipes(scale)
    return found if scale != "quick" else {name: found[name] for name in (*WITH_SGD, f"{NONE}, ELU, Muon, pinned")}


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    return {name: table5.summary(outcome) for name, outcome in outcomes.items()}


def draw(seeds: Sequence[Results]) -> Figure:
    """The test error of each run, coloured by its norm."""

    def look(name: str) -> tuple[str, str]:
        return COLORS[NONE if NONE in name else BATCH_NORM], f"learning rate {seeds[0][name]['lr']:g}"

    return draw_points(seeds, "test_error", look, xlabel="test error (%)")


def table(title: str) -> Callable[[Sequence[Results]], list[Table]]:
    """The test error and the training loss of each run."""
    columns = {"test_error": "test error (%)", "last_train_loss": "training loss, last steps"}
    return lambda seeds: [flat_table(title, seeds, columns)]


def best_of_both(e: Evidence, item: str, setting: str = "") -> tuple[Order, str]:
    """The lowest error without norm beside the lowest with batch norm, and the words for it."""
    (ours, without), (theirs, with_) = (lowest(e, item, f"{setting}{norm}") for norm in (NONE, BATCH_NORM))
    reason = f"lowest test error (%): {ours} {without.text(1)}; {theirs} {with_.text(1)}"
    return e.compare(without, with_, ERROR.at(e.scale(item))), reason


def _ahead(e: Evidence) -> Verdict:
    order, reason = best_of_both(e, "normfree")
    return decided_by([order], "below", reason)


def _behind(e: Evidence) -> Verdict:
    without, with_ = (e.entry("normfree", name, "test_error") for name in WITH_SGD)
    reason = f"test error (%) by SGD: {NONE} {without.text(1)}, {BATCH_NORM} {with_.text(1)}"
    return decided_by([e.compare(without, with_, ERROR.at(e.scale("normfree")))], "above", reason)


CLAIMS = [
    Claim(
        "ahead without norm",
        "In as many steps, each by its best recipe, a residual network without norms ends ahead of itself with batch "
        "norm.",
        where=OURS,
        items=("normfree",),
        rule=f"the lowest test error without norm is below the lowest with batch norm; margin: {ERROR}",
        decide=_ahead,
    ),
    Claim(
        "behind with sgd",
        "By SGD it ends behind: the recipe has to change with the norm.",
        where=OURS,
        items=("normfree",),
        rule=f"the test error of ReLU by SGD is higher without norm than with batch norm; margin: {ERROR}",
        decide=_behind,
    ),
]

ITEM = Training(
    name="normfree",
    title="A residual network with batch norm and without, by recipe: test error (%)",
    about=(
        "All runs take as many steps; the learning rate rises over the first tenth and falls to zero. Pinned: after "
        "every step each filter is brought back to the norm that LSUV gave it. LSUV sets the second moment after each "
        "activation to 1; networks with batch norm need none. SGD without norm clips the gradient's norm at 1, "
        "because it diverges otherwise. Gains: each pinned filter learns a factor of its norm. Centred: LSUV also sets "
        "the mean of the input of every activation to zero, by the bias before it."
    ),
    claims=CLAIMS,
    published={"claim": "bipolar activations and LSUV alleviate the need for normalisation layers"},
    runs=runs,
    collect=collect,
    caption=(
        "Each point is a seed, the black line their mean; further left is better. Blue: with batch norm; orange: "
        "without. Look how far the orange points move to the left from recipe to recipe, and whether the last ones "
        "reach the blue."
    ),
    draw=draw,
    tables=table("By norm and recipe"),
)
