"""A study: the search for a recipe of deep recurrent networks, on small ones, and the way to wider ones.

The paper trains 36 x 256 for some 80 hours of two cores. A recipe that does it in a few is found on 36 x 64, in half a
minute for each trial. The rate then goes to wider networks by a rule, which 36 x 128 checks: that of Adam is inverse to
the width, that of Muon stays. At 36 x 256 the two meet.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from bipolar.lab.paper import rates36
from bipolar.lab.reproduce.comparisons import Order
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Outcome, Results
from bipolar.lab.reproduce.points import draw_points
from bipolar.lab.reproduce.rules import BPC, decided_if
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, flat_table
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, MissingError, Verdict
from bipolar.lab.training.text import TextConfig
from bipolar.lab.training.update import Update

#: Peak rates of Adam at the width of the search, and of Muon.
ADAM, MUON = (2e-3, 4e-3, 8e-3, 1.6e-2), (0.01, 0.02, 0.04)
#: The rate of the trials that change something else, and the one of Muon.
BEST, BEST_MUON = 8e-3, 0.02
#: The wider networks have as many times the units, and these rates relative to the ones of the search.
WIDER, SHARES = 2, (1.0, 0.5, 0.25)
#: The width at which the rules of both optimisers are put beside each other, the paper's, and the name of that network.
WIDEST, PAPER_SIZE = 4, "the paper's size"
COLORS = {"Adam": "#1f77b4", "Muon": "#d95f02", "wider": "#7570b3", PAPER_SIZE: "#1b9e77"}
PAPER = "the paper's recipe"


def _changes() -> dict[str, dict[str, Any]]:
    """Changes to the recipe at its best rate, one at a time."""
    fast = Update(recipe="fast", optimizer="adam")
    return {
        "decay along a cosine": {"update": replace(fast, decay="cosine")},
        "decay at the end (cooldown)": {"update": replace(fast, decay="cooldown")},
        "no warm-up": {"update": replace(fast, warm_up=0.0)},
        "no clipping to speak of": {"update": replace(fast, clip=1e3)},
        "half the batch": {"batch_size": 64},
        "twice the window": {"window": 100, "batch_size": 64},
    }


def runs(scale: Scale) -> dict[str, TextConfig]:
    config = rates36.base(scale)
    found = {PAPER: replace(config, update=Update(), lr=None if scale == "paper" else 4e-4)}
    found |= {_adam(rate): replace(config, lr=rate) for rate in ADAM}
    muon = replace(config, update=replace(config.update, optimizer="muon"))
    found |= {_muon(rate): replace(muon, lr=rate) for rate in MUON}
    found |= {f"{_adam(BEST)}, {name}": replace(config, lr=BEST, **change) for name, change in _changes().items()}
    wide = _widened(config, WIDER)
    found |= {_wider(share): replace(wide, lr=share * BEST) for share in SHARES}
    found |= {_wider_muon(rate): replace(_widened(muon, WIDER), lr=rate) for rate in MUON}
    found[_of_paper_size("Adam")] = replace(_widened(config, WIDEST), lr=BEST / WIDEST)
    found[_of_paper_size("Muon")] = replace(_widened(muon, WIDEST), lr=BEST_MUON)
    return found if scale != "quick" else {name: found[name] for name in (PAPER, _adam(BEST))}


def _widened(config: TextConfig, times: int) -> TextConfig:
    return replace(config, model=replace(config.model, hidden_size=times * config.model.hidden_size))


def _adam(rate: float) -> str:
    return f"Adam {rate:g}"


def _muon(rate: float) -> str:
    return f"Muon {rate:g}"


def _wider(share: float) -> str:
    return f"wider, {share:g} of the best rate: {share * BEST:g}"


def _wider_muon(rate: float) -> str:
    return f"wider, Muon {rate:g}"


def _of_paper_size(optimizer: str) -> str:
    return f"{PAPER_SIZE}, {optimizer}"


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    return {
        name: {
            "valid_bpc": outcome.result["best_valid_bpc"] if outcome.converged else DNC,
            "characters": outcome.result["step"] * outcome.config["batch_size"] * outcome.config["window"] / 1e6,
            "seconds": outcome.result.get("seconds"),
        }
        for name, outcome in outcomes.items()
    }


def draw(seeds: Sequence[Results]) -> Figure:
    def look(name: str) -> tuple[str, str]:
        kind = next((kind for kind in COLORS if name.startswith(kind)), "Adam")
        return COLORS[kind], f"{seeds[0][name]['characters']:.1f} million characters"

    return draw_points(seeds, "valid_bpc", look, xlabel="validation BPC")


def _entries(e: Evidence, names: Iterable[str]) -> dict[str, Entry]:
    """The validation errors of those runs that there are."""
    return {name: e.entry("recipe36", name, "valid_bpc") for name in names if name in e.seeds("recipe36")[0]}


def _carries_over(
    best: Mapping[str, Sequence[str]], ruled: Mapping[str, Sequence[str]]
) -> Callable[[Evidence], Verdict]:
    """A rule by width: the rate is not behind those beside it, neither where it was found nor where the rule puts it.

    Args:
        best: the run at the rate that was found, and those beside it
        ruled: the same of the wider network
    """

    def orders_of(e: Evidence, runs: Mapping[str, Sequence[str]]) -> tuple[list[Order], str]:
        ((own, others),) = runs.items()
        found = _entries(e, [own, *others])
        if len(found) <= len(others):
            raise MissingError("recipe36 lacks runs of the narrow network or of the wider one here")
        orders = [e.compare(found[own], found[other], BPC.at(e.scale("recipe36"))) for other in others]
        beside = ", ".join(f"{other} {found[other].text()}" for other in others)
        return orders, f"{own} {found[own].text()}; beside it {beside}"

    def decide(e: Evidence) -> Verdict:
        (narrow, where), (wide, there) = orders_of(e, best), orders_of(e, ruled)
        reason = f"validation BPC: {where}. By the rule {there}"
        if not all(order in ("below", "equal") for order in narrow):
            return Verdict("not decided", f"another rate may be the best of the narrow network: {reason}")
        return decided_if(all(order in ("below", "equal") for order in wide), reason, *wide)

    return decide


def _below(name: str, rival: str) -> Callable[[Evidence], Verdict]:
    """A rule: a run ends below another one."""

    def decide(e: Evidence) -> Verdict:
        found = _entries(e, [name, rival])
        if len(found) < 2:
            raise MissingError(f"recipe36 has no runs of {name} and {rival} here")
        order = e.compare(found[name], found[rival], BPC.at(e.scale("recipe36")))
        reason = f"validation BPC after as many steps: {name} {found[name].text()}, {rival} {found[rival].text()}"
        return decided_if(order == "below", reason, order)

    return decide


CLAIMS = [
    Claim(
        "fast recipe",
        "The fast recipe reaches a lower error than the paper's in as many steps.",
        where=OURS,
        items=("recipe36",),
        rule=f"the validation error at the rate of {BEST:g} is below that of the paper's recipe; margin: {BPC}",
        decide=_below(_adam(BEST), PAPER),
    ),
    Claim(
        "rate by width",
        "The best rate of Adam is inverse to the width: it carries over to wider networks.",
        where=OURS,
        items=("recipe36",),
        rule=(
            f"the rate of {BEST:g} is not behind half and twice of it, and at twice the width half of it is not behind "
            f"the whole and a quarter; margin: {BPC}"
        ),
        decide=_carries_over(
            {_adam(BEST): [_adam(BEST / 2), _adam(2 * BEST)]},
            {_wider(1 / WIDER): [_wider(share) for share in SHARES if share != 1 / WIDER]},
        ),
    ),
    Claim(
        "rate of Muon by width",
        "The best rate of Muon carries over to wider networks as it is.",
        where=OURS,
        items=("recipe36",),
        rule=(
            f"the rate of {BEST_MUON:g} is not behind half and twice of it, nor is it at twice the width; margin: {BPC}"
        ),
        decide=_carries_over(
            {_muon(BEST_MUON): [_muon(rate) for rate in MUON if rate != BEST_MUON]},
            {_wider_muon(BEST_MUON): [_wider_muon(rate) for rate in MUON if rate != BEST_MUON]},
        ),
    ),
    Claim(
        "Muon at the paper's size",
        "At the paper's size Muon reaches a lower error than Adam, each at the rate of its rule, in as many steps.",
        where=OURS,
        items=("recipe36",),
        rule=f"the validation error of 36x256 by Muon is below that by Adam; margin: {BPC}",
        decide=_below(_of_paper_size("Muon"), _of_paper_size("Adam")),
    ),
]

ITEM = Training(
    name="recipe36",
    title="The search for a recipe of 36 layers: validation BPC",
    about=(
        "36 layers of BELU, by Adam and by Muon at several peak rates, and by Adam with one setting changed; at the "
        "scale small with 64 units, in the wider network 128, and 256 at the paper's size. By the fast recipe the rate "
        "rises over the first tenth of the run and falls to zero along a line; the norm of the gradient is clipped at "
        "1. All runs take as many steps; those with half the batch see half the characters, unless the window is twice "
        "as long. At the scale small all compute in bf16-mixed precision."
    ),
    claims=CLAIMS,
    published={},
    runs=runs,
    collect=collect,
    draw=draw,
    caption=(
        "Each row is a recipe; the farther left its points, the better. Blue: Adam; orange: Muon; violet: a wider "
        "network, where the rules hold if half the best rate of Adam, and the same rate of Muon, are not to the right "
        "of the others; green: the paper's size."
    ),
    tables=lambda seeds: [
        flat_table(
            "By recipe",
            seeds,
            {"valid_bpc": "validation BPC", "characters": "million characters", "seconds": "seconds"},
        )
    ],
)
