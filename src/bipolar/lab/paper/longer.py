"""A study: a residual network with batch norm and without, when it trains longer, and when it is deeper.

The item ``normfree`` finds the recipe on a small network in two epochs. Here is whether the one without norms stays
ahead with three times the steps, and with more layers.
"""

from collections.abc import Callable
from dataclasses import replace

from bipolar.lab.paper import normfree, plain, table5
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.rules import ERROR, decided_by
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict
from bipolar.lab.training.images import ImageConfig
from bipolar.lab.training.machine import Machine

BATCH_NORM, NONE = normfree.BATCH_NORM, normfree.NONE
#: A recipe of ``normfree``, its rate, and whether Adam has a high rate, with which a network without norm learns gains;
#: batch norm has its own. Batch norm gets better from 0.05 up to 0.4.
KINDS: dict[str, tuple[str, float, bool]] = {
    **{f"{BATCH_NORM}, rate {lr:g}": (f"{BATCH_NORM}, ELU, Muon", lr, False) for lr in (0.1, 0.4)},
    f"{BATCH_NORM}, rate 0.4, Adam {plain.ADAM:g}": (f"{BATCH_NORM}, ELU, Muon", 0.4, True),
    f"{NONE}, pinned": (f"{NONE}, BELU, Muon, pinned", 0.05, False),
    f"{NONE}, pinned, learned gains": (f"{NONE}, BELU, Muon, pinned", 0.05, True),
    f"{NONE}, pinned, learned gains, centred": (f"{NONE}, BELU, Muon, pinned, gains, centred", 0.05, True),
}
#: What the scale quick has of them.
OF_QUICK = ("longer: batch norm, rate 0.1", "longer: no norm, pinned")
LONGER, DEEPER = "longer", "deeper"


def runs(scale: Scale) -> dict[str, ImageConfig]:
    recipes, factor = normfree.recipes(scale), 4 if scale == "paper" else 3
    found = {}
    for setting in (LONGER, DEEPER):
        for kind, (name, lr, fast_adam) in KINDS.items():
            config = replace(recipes[name], lr=lr)
            if fast_adam:
                gain = normfree.GAIN if kind.startswith(NONE) else None
                config = replace(config, gain=gain, update=replace(config.update, adam_lr=plain.ADAM))
            if scale == "small":
                config = replace(config, machine=Machine(precision=table5.PRECISION))
            if setting == LONGER:
                config = replace(config, max_epochs=factor * config.length.max_epochs)
            else:
                config = replace(config, model=replace(config.model, depth=config.model.depth + 6))
            found[f"{setting}: {kind}"] = config
    return found if scale != "quick" else {name: found[name] for name in OF_QUICK}


def _ahead(setting: str) -> Callable[[Evidence], Verdict]:
    """A rule: without norm the error is lower than with batch norm at the best of its rates."""

    def decide(e: Evidence) -> Verdict:
        order, reason = normfree.best_of_both(e, "longer", f"{setting}: ")
        return decided_by([order], "below", reason)

    return decide


CLAIMS = [
    Claim(
        f"ahead {setting}",
        f"A residual network without norms ends ahead of itself with batch norm {words}.",
        where=OURS,
        items=("longer",),
        rule=f"the test error without norm is below that with batch norm, each at its best rate; margin: {ERROR}",
        decide=_ahead(setting),
    )
    for setting, words in ((LONGER, "when both train longer, too"), (DEEPER, "when both are deeper, too"))
]

ITEM = Training(
    name="longer",
    title="A residual network with batch norm and without, trained longer, and deeper: test error (%)",
    about=(
        "The best recipe of the item normfree without norm, and batch norm at two of its rates, of which the higher "
        "was within the noise of its best, 0.8. Without norm, half and twice the rate were worse with one seed. "
        f"Learned gains: each pinned filter has a gain, and Adam, which learns biases, a rate of {plain.ADAM:g}; the "
        "better of five settings in trials with another seed, judged by the error on the test images. Batch norm gets "
        "that rate of Adam, too. Centred: as in normfree. Longer: three "
        "times the epochs, at the paper's scale four times. Deeper: 6 more layers, in as many steps."
    ),
    claims=CLAIMS,
    published={},
    runs=runs,
    collect=normfree.collect,
    caption=(
        "Each point is a seed, the black line their mean; further left is better. Blue: with batch norm; orange: "
        "without. Compare the orange points of a group with the best of its blue ones."
    ),
    draw=normfree.draw,
    tables=normfree.table("By length, depth and norm"),
)
