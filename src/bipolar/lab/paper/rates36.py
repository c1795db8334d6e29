"""A study: the learning rates that 36 layers bear, by activation, and what each reaches at its best rate.

The paper trains its recurrent networks at one rate, and says that bipolar ones train where plain ones do not. By the
fast recipe rates are many times higher. Here every network has every rate.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from bipolar._tools.figures import ACTIVATION_COLORS
from bipolar.lab.paper import table1
from bipolar.lab.reproduce.comparisons import Margin, Order
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Outcome, Results
from bipolar.lab.reproduce.rules import BPC, decided_by
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, Table, over
from bipolar.lab.reproduce.verdicts import OURS, Claim, Evidence, MissingError, Verdict
from bipolar.lab.training.guard import SLOW
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.text import TextConfig, TextModel
from bipolar.lab.training.update import Update

#: The peak rates, each twice the one before.
RATES = tuple(1e-3 * 2**doublings for doublings in range(6))
#: The networks, and those of the quick scale with their rates.
NETWORKS = table1.COLUMNS
QUICK_NETWORKS, QUICK_RATES = ("relu", "brelu"), (RATES[1], RATES[4])
#: A network bears a rate if it ends so many BPC above the best of all networks at most.
BEARABLE = 0.5
#: Two networks bear different rates from here on.
DOUBLINGS = Margin(0.5, 0.9, "doublings", paper=0.5)
PAIRS = {"relu": "brelu", "elu": "belu"}


def base(scale: Scale) -> TextConfig:
    """The network and the length of a run: everything but activation and rate."""
    update = Update(recipe="fast", optimizer="adam")
    if scale == "quick":
        model = TextModel(36, 32)
        quick = TextConfig("python-docs", model, update=update, max_steps=25, batch_size=8, window=25, patience=25)
        return replace(quick, max_valid_windows=5)
    if scale == "small":
        machine = Machine(precision="bf16-mixed")  # twice as fast on a processor that has it
        return TextConfig("ptb", TextModel(36, 64), machine=machine, update=update, max_steps=300, patience=150)
    return replace(table1.base("paper", 36), update=update, max_epochs=20)


def runs(scale: Scale) -> dict[str, TextConfig]:
    config, quick = base(scale), scale == "quick"
    found = {}
    for name in QUICK_NETWORKS if quick else NETWORKS:
        nonlinearity, target = NETWORKS[name]
        model = replace(config.model, nonlinearity=nonlinearity, lsuv=target)
        for rate in QUICK_RATES if quick else RATES:
            found[f"{name}: {rate:g}"] = replace(config, model=model, lr=rate)
    return found


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The validation error by network and rate, or why a run did not converge."""
    found: dict[str, dict[str, Any]] = {}
    for name, outcome in outcomes.items():
        network, _, rate = name.partition(": ")
        reached = outcome.converged
        found.setdefault(network, {})[rate] = {
            "valid_bpc": outcome.result["best_valid_bpc"] if reached else f"{DNC}: {outcome.result['reason']}",
            "last_train_bpc": outcome.last("train_bpc") if reached else DNC,
            "seconds": outcome.result.get("seconds"),
        }
    return found


def _bearable(results: Results) -> float:
    """The error up to which one seed of a network bears a rate: near the best of all networks of that seed."""
    found = [run["valid_bpc"] for network in results.values() for run in network.values()]
    return BEARABLE + min((error for error in found if isinstance(error, float)), default=math.inf)


def highest_borne(results: Results, name: str) -> float | None:
    """The rate up to which one seed of a network ends near the best of all networks of that seed, at every rate."""
    bearable, highest = _bearable(results), None
    for rate, run in sorted(results[name].items(), key=lambda entry: float(entry[0])):
        error = run["valid_bpc"]
        if isinstance(error, float) and error <= bearable:
            highest = float(rate)
        elif highest is not None or (isinstance(error, str) and SLOW not in error):  # a low rate may be merely slow
            break
    return highest


def rates_borne(results: Results, name: str) -> list[str]:
    """The rates that one seed of a network bears; at one below them it may be merely slow."""
    bearable, highest = _bearable(results), highest_borne(results, name)
    runs = {} if highest is None else {rate: run for rate, run in results[name].items() if float(rate) <= highest}
    return [r for r, run in runs.items() if isinstance(run["valid_bpc"], float) and run["valid_bpc"] <= bearable]


def best_rate(seeds: Sequence[Results], network: str) -> str | None:
    """The rate of lowest mean error, among those at which the fewest seeds diverge."""
    entries = {rate: Entry(over(seeds, network, rate, "valid_bpc")) for rate in seeds[0].get(network, {})}
    reached = {rate: (entry.failed, entry.mean) for rate, entry in entries.items() if entry.mean is not None}
    return min(reached, key=lambda rate: reached[rate]) if reached else None


def tables(seeds: Sequence[Results]) -> list[Table]:
    names = list(seeds[0])
    rates = list(dict.fromkeys(rate for name in names for rate in seeds[0][name]))
    errors = {name: [Entry(over(seeds, name, rate, "valid_bpc")) for rate in rates] for name in names}
    return [
        Table("Validation BPC by learning rate", rates, errors),
        Table(
            "What each network bears",
            ["highest rate it bears, by seed", "best rate", "validation BPC there", "runs that diverge"],
            {name: _summary(seeds, name) for name in names},
        ),
    ]


def _summary(seeds: Sequence[Results], name: str) -> list[Entry]:
    borne = [highest_borne(seed, name) for seed in seeds if name in seed]
    ends = [run["valid_bpc"] for seed in seeds for run in seed.get(name, {}).values()]
    best = best_rate(seeds, name)
    return [
        Entry([", ".join("none" if rate is None else f"{rate:g}" for rate in borne)]),
        Entry([best or "none"]),
        Entry(over(seeds, name, best, "valid_bpc") if best else [DNC]),
        Entry([f"{sum(isinstance(end, str) for end in ends)} of {len(ends)}"]),
    ]


def draw(seeds: Sequence[Results]) -> Figure:
    """Error against rate, a line for each network; a cross on top where seeds diverge, with their number."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log", base=2)
    names = list(seeds[0])
    for place, name in enumerate(names):
        activation = NETWORKS[name][0]
        plain = activation.removeprefix("b")
        style = "--" if activation != plain else ":" if "second moment" in name else "-"
        entries = {float(rate): Entry(over(seeds, name, rate, "valid_bpc")) for rate in seeds[0][name]}
        apart = 1.03 ** (place - (len(names) - 1) / 2)  # side by side, to be told apart
        reached = {rate * apart: entry for rate, entry in entries.items() if entry.mean is not None}
        axes.errorbar(
            list(reached),
            [float(entry.mean or 0.0) for entry in reached.values()],
            [entry.spread or 0.0 for entry in reached.values()],
            color=ACTIVATION_COLORS[plain],
            linestyle=style,
            marker=".",
            linewidth=1.2,
            elinewidth=0.8,
            label=name,
        )
        for rate, entry in entries.items():
            failed = len(entry.ours) - len(entry.numbers)
            if failed:
                height = 0.98 - 0.035 * place
                where: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "color": ACTIVATION_COLORS[plain]}
                axes.plot(rate * apart, height, marker="x", markersize=5, **where)
                axes.text(rate * apart * 1.03, height, f"{failed}, {name}", fontsize=6, va="center", **where)
    rates = sorted({float(rate) for name in names for rate in seeds[0][name]})
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.set(xlabel="learning rate at its peak", ylabel="validation BPC")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small", title="cross: seeds that diverge", title_fontsize="small")
    return figure


def _below_the_top(e: Evidence, name: str) -> Entry:
    """By how many doublings the highest rate that a network bears is below the highest that was tried, by seed."""

    def value(results: Results) -> float | str | None:
        if name not in results:
            return None
        highest, top = highest_borne(results, name), max(map(float, results[name]))
        return DNC if highest is None else math.log2(top / highest)

    found = e.entry_of("rates36", name, value)
    return replace(found, quantity="highest rate that it bears, in doublings below the highest that was tried")


def _text_of_rates(e: Evidence, name: str) -> str:
    borne, *_ = _summary(e.seeds("rates36"), name)
    return f"{name} {borne.text()}"


def _order_of_rates(e: Evidence, name: str, rival: str) -> Order:
    """Below, if a network bears higher rates than a rival; unclear, if both bear all that were tried."""
    ours, theirs = (_below_the_top(e, kind) for kind in (name, rival))
    if set(ours.ours) == set(theirs.ours) == {0.0}:
        return "unclear"
    return e.compare(ours, theirs, DOUBLINGS)


def _bear(pairs: Mapping[str, str], wanted: Order) -> Callable[[Evidence], Verdict]:
    """A rule on the highest rates that networks bear, each compared with its rival."""

    def decide(e: Evidence) -> Verdict:
        names = dict.fromkeys(name for pair in pairs.items() for name in pair)
        reason = "highest rate borne, by seed: " + "; ".join(_text_of_rates(e, name) for name in names)
        return decided_by([_order_of_rates(e, name, rival) for name, rival in pairs.items()], wanted, reason)

    return decide


def _best(e: Evidence, name: str) -> tuple[str, Entry]:
    rate = best_rate(e.seeds("rates36"), name)
    if rate is None:
        raise MissingError(f"no run of rates36 with {name} has converged")
    return f"{name} at {rate}", e.entry("rates36", name, rate, "valid_bpc")


def _equally_well(e: Evidence) -> Verdict:
    found = {name: _best(e, name) for pair in PAIRS.items() for name in pair}
    reason = "validation BPC: " + ", ".join(f"{where} {entry.text()}" for where, entry in found.values())
    margin = BPC.at(e.scale("rates36"))
    orders = [e.compare(found[bipolar][1], found[plain][1], margin) for plain, bipolar in PAIRS.items()]
    return decided_by(orders, "equal", reason)


def _alike(e: Evidence) -> Verdict:
    """Equal at every rate that all seeds of both bear."""
    margin, orders, reasons = BPC.at(e.scale("rates36")), [], []
    for plain, bipolar in PAIRS.items():
        borne = [rates_borne(seed, name) for seed in e.seeds("rates36") for name in (plain, bipolar) if name in seed]
        shared = [rate for rate in borne[0] if all(rate in other for other in borne)] if borne else []
        reasons += [] if shared else [f"{plain} and {bipolar} share no rate"]
        for rate in shared:
            ours, theirs = (e.entry("rates36", name, rate, "valid_bpc") for name in (bipolar, plain))
            orders.append(e.compare(ours, theirs, margin))
            reasons.append(f"at {rate} {bipolar} {ours.text()}, {plain} {theirs.text()}")
    if not orders:
        raise MissingError("no rate of rates36 is borne by all seeds of a plain and a bipolar network")
    return decided_by(orders, "equal", f"validation BPC: {'; '.join(reasons)}")


BEARS = (
    f"a seed of a network bears a rate if its best validation there is at most {BEARABLE:g} BPC above the best of all "
    "networks of that seed, and the network fails at no rate in between"
)
BORNE = f"{BEARS}; margin: {DOUBLINGS}; undecided where both bear all rates that were tried"

CLAIMS = [
    Claim(
        "higher rates at 36 layers",
        "Bipolar networks of 36 layers bear higher learning rates than plain ones.",
        where=OURS,
        items=("rates36",),
        rule=f"the highest rate that BReLU bears is above that of ReLU, and that of BELU above that of ELU; {BORNE}",
        decide=_bear({bipolar: plain for plain, bipolar in PAIRS.items()}, "below"),
    ),
    Claim(
        "rates by second moment",
        "Plain networks started by LSUV on the second moment bear the rates that bipolar ones bear.",
        where=OURS,
        items=("rates36",),
        rule=f"the highest rates that they bear are equal, for ReLU and for ELU; {BORNE}",
        decide=_bear({f"{plain}, second moment": bipolar for plain, bipolar in PAIRS.items()}, "equal"),
    ),
    Claim(
        "equal at their best rates",
        "At the best rate of each, plain and bipolar networks of 36 layers do equally well.",
        where=OURS,
        items=("rates36",),
        rule=f"the validation errors of ReLU and BReLU are equal, and those of ELU and BELU; margin: {BPC}",
        decide=_equally_well,
    ),
    Claim(
        "alike at every rate",
        "At each rate that both bear with all seeds, plain and bipolar networks of 36 layers end alike.",
        where=OURS,
        items=("rates36",),
        rule=(
            "a rule formed after the runs were seen: at every rate that all seeds of both bear, the validation errors "
            "of ReLU and BReLU are equal, and those of ELU and BELU; a pair without such a rate does not count; "
            f"{BEARS}; margin: {BPC}"
        ),
        decide=_alike,
    ),
]

ITEM = Training(
    name="rates36",
    title="Learning rates that 36 layers bear, by activation: validation BPC",
    about=(
        "The fast recipe: Adam, the learning rate rises over the first tenth of the run to its peak and falls to zero; "
        "the gradient's norm is clipped at 1. At the scale small all compute in bf16-mixed precision. "
        f"{table1.SECOND_MOMENT}"
    ),
    claims=CLAIMS,
    published={"claim": "deep networks train with bipolar activations where they do not with plain ones"},
    runs=runs,
    collect=collect,
    caption=(
        "Error against learning rate, a line for each network. The further to the right a line goes before it rises "
        "or ends in a cross, which stands for seeds that diverge, the higher the rates that the network bears."
    ),
    draw=draw,
    tables=tables,
)
