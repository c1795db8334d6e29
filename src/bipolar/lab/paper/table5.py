"""Table 5: CIFAR-10 test error of residual networks without batch norm, and the learning rate that the search found.

Beside them are the networks with batch norm, whose errors the paper's text quotes, and the plain activations with a
rectified shortcut. The paper does not say what its shortcuts carry: an activation in place, with no norm before it,
rectifies the residual stream itself. With a clean shortcut a plain and a bipolar WideResNet are equal in distribution.

The small scale has smaller networks and trains them by the fast recipe, at one rate for all that have no norm: by the
paper's, no network without norms learns much in as few steps. So it decides about errors, and not about the search.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from bipolar.lab.reproduce.comparisons import all_converged, diverged
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Outcome, Results, halved_for_slowness
from bipolar.lab.reproduce.rules import ERROR, decided_by, entry_of_search
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, Table, over
from bipolar.lab.reproduce.verdicts import Claim, Evidence, MissingError, Status, Verdict
from bipolar.lab.training.images import ImageConfig, ImageModel
from bipolar.lab.training.machine import Machine
from bipolar.lab.training.update import Update

ACTIVATIONS = ("relu", "brelu", "elu", "belu")
BATCH_NORM = "batch norm"
#: The activations whose module may work in place, with the shortcut that this makes.
RECTIFIED = {"relu, rectified": "relu", "elu, rectified": "elu"}
COLUMNS = (*ACTIVATIONS, *RECTIFIED, BATCH_NORM)
PUBLISHED = {
    "orn": {"relu": 9.20, "brelu": 4.91, "elu": 9.03, "belu": 5.35, BATCH_NORM: 2.98},
    "wrn": {"relu": 9.78, "brelu": 6.03, "elu": 7.69, "belu": 6.12, BATCH_NORM: 4.17},
}
#: The plain columns of each reading of the shortcut; the bipolar ones are never in place.
READINGS = {"clean": "{}", "rectified": "{}, rectified"}
#: The rate of Muon that suits networks with batch norm, by the item longer.
FAST_RATE_OF_BATCH_NORM = 0.4
#: The precision of small networks: half the time of single precision, where a processor has it.
PRECISION: Final = "bf16-mixed"
#: The error of a network that is half as wrong as a guess, in per cent.
USEFUL = 45.0


def base(scale: Scale, network: Literal["wrn", "orn"]) -> ImageConfig:
    """The recipe at a scale: everything but the activation."""
    if scale == "paper":
        return ImageConfig(data="cifar10", model=ImageModel(network), search=True)
    # without dropout, of which networks so small learn little in so few steps; no search
    model = ImageModel(network, 10, 1, dropout=0.0)
    if network == "orn":
        model = replace(model, orientations=4)
    if scale == "small":
        fast = Update(recipe="fast")
        return ImageConfig(model=model, machine=Machine(precision=PRECISION), update=fast, batch_size=250, max_epochs=3)
    return ImageConfig(data="digits", model=model, lr=0.02, max_epochs=6, batch_size=32)


def runs(scale: Scale) -> dict[str, ImageConfig]:
    found: dict[str, ImageConfig] = {}
    for network in ("wrn", "orn"):
        config = base(scale, network)
        models = {activation: replace(config.model, activation=activation) for activation in ACTIVATIONS}
        for column, activation in RECTIFIED.items():
            if (scale, network) != ("quick", "orn"):
                models[column] = replace(config.model, activation=activation, shortcut="rectified")
        found |= {f"{network}: {column}": replace(config, model=model) for column, model in models.items()}
        norm = replace(config.model, activation="relu", norm="batch")
        rate = FAST_RATE_OF_BATCH_NORM if config.update.fast else 0.1
        found[f"{network}: {BATCH_NORM}"] = replace(config, model=norm, lr=rate, search=False)
    return found


def summary(outcome: Outcome) -> dict[str, Any]:
    """The error in per cent, or why the run did not converge; the rate, and the attempts before it."""
    result = outcome.result
    return {
        "test_error": result["test_error"] if outcome.converged else f"{DNC}: {result['reason']}",
        "lr": result.get("lr", outcome.config["lr"]),
        "last_train_loss": outcome.last("train_loss"),
        "attempts": result.get("attempts", []),
    }


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {}
    for name, outcome in outcomes.items():
        network, _, activation = name.partition(": ")
        table.setdefault(network, {})[activation] = summary(outcome)
    return table


def tables(seeds: Sequence[Results]) -> list[Table]:
    errors = {n: [Entry(over(seeds, n, c, "test_error"), PUBLISHED[n].get(c)) for c in COLUMNS] for n in PUBLISHED}
    rates = {n: [Entry(over(seeds, n, c, "lr")) for c in COLUMNS[:-1]] for n in PUBLISHED}
    return [
        Table("Test error (%)", COLUMNS, errors, digits=2),
        Table("Learning rate that the search found", COLUMNS[:-1], rates, digits=4),
    ]


def _error(e: Evidence, network: str, column: str) -> Entry:
    def value(results: Results) -> float | str | None:
        return next(iter(over([results], network, column, "test_error")), None)

    return entry_of_search(e, "table5", f"{network} / {column} / test_error", value)


def _row(e: Evidence, network: str) -> Results:
    """The cells of a network with the first seed, which finds the rates."""
    row: Results = e.seeds("table5")[0].get(network, {})
    return row


def _pairs(e: Evidence, reading: str) -> dict[tuple[str, str, str], tuple[Entry, Entry]]:
    """The errors of each pair of plain and bipolar runs, by network and columns, in a reading of the shortcut."""
    found = [
        (network, READINGS[reading].format(name), f"b{name}") for network in ("wrn", "orn") for name in ("relu", "elu")
    ]
    return {
        (network, plain, flipped): (_error(e, network, plain), _error(e, network, flipped))
        for network, plain, flipped in found
        if {plain, flipped} <= _row(e, network).keys()
    }


def _in_either_reading(decide: Callable[[Evidence, str], Verdict]) -> Callable[[Evidence], Verdict]:
    """A rule: decided in each reading of the shortcut that has runs, and reproduced if it is in one of them."""

    def decide_all(e: Evidence) -> Verdict:
        verdicts = {reading: decide(e, reading) for reading in READINGS if _pairs(e, reading)}
        if not verdicts:
            raise MissingError("table5 has no pair of a plain and a bipolar run")
        statuses = {verdict.status for verdict in verdicts.values()}
        status: Status = "reproduced" if "reproduced" in statuses else "not decided"
        return Verdict(
            "not reproduced" if statuses == {"not reproduced"} else status,
            "; ".join(
                f"with a {name} shortcut {verdict.status}: {verdict.reason}" for name, verdict in verdicts.items()
            ),
        )

    return decide_all


def _rates(e: Evidence, reading: str) -> Verdict:
    if not base(e.scale("table5"), "wrn").search:
        raise MissingError("the runs of this scale take a rate that is given; `--scale paper` searches for it")
    ratios = {}
    for (network, plain, flipped), errors in _pairs(e, reading).items():
        row = _row(e, network)
        for column in (plain, flipped):
            if halved_for_slowness(row[column].get("attempts", [])):
                name = f"{network}, {column}"
                raise MissingError(
                    f"the search of {name} was halved for slow training, not for divergence: run it again"
                )
        found = 0.0 if diverged(errors[1]) else row[flipped]["lr"]  # a search that fails finds no rate
        e.show(*(e.entry("table5", network, column, "lr") for column in (flipped, plain)))
        ratios[f"{network}, {plain}"] = found / row[plain]["lr"] if not found or not diverged(errors[0]) else math.inf
    reason = "the rate that was found for the bipolar version is " + ", ".join(
        f"{ratio:g} times that of {name}" for name, ratio in ratios.items()
    )
    values = list(ratios.values())
    if min(values) >= 1 and max(values) >= 4:
        return Verdict("reproduced", reason)
    return Verdict("not reproduced" if max(values) <= 2 else "not decided", reason)


def _errors(e: Evidence, reading: str) -> Verdict:
    pairs, margin = _pairs(e, reading), ERROR.at(e.scale("table5"))
    reason = "test error (%), plain and bipolar: " + "; ".join(
        f"{network}, {name} {plain.text(1)} and {flipped.text(1)}"
        for (network, name, _), (plain, flipped) in pairs.items()
    )
    return decided_by([e.compare(flipped, plain, margin) for plain, flipped in pairs.values()], "below", reason)


def _without_norm(e: Evidence, columns: Sequence[str]) -> dict[str, tuple[dict[str, Entry], Entry]]:
    """For each network the errors without batch norm, by column, and the error with it."""
    return {
        network: (
            {column: _error(e, network, column) for column in columns if column in _row(e, network)},
            _error(e, network, BATCH_NORM),
        )
        for network in PUBLISHED
        if _row(e, network)
    }


def _errors_with_and_without(networks: Mapping[str, tuple[Mapping[str, Entry], Entry]]) -> str:
    return "test error (%): " + "; ".join(
        f"{network} with batch norm {norm.text(1)}, without "
        + ", ".join(f"{entry.text(1)} ({column})" for column, entry in entries.items())
        for network, (entries, norm) in networks.items()
    )


def _batch_norm_is_better(e: Evidence) -> Verdict:
    networks, margin = _without_norm(e, ACTIVATIONS), ERROR.at(e.scale("table5"))
    orders = [e.compare(entry, norm, margin) for entries, norm in networks.values() for entry in entries.values()]
    reason = _errors_with_and_without(networks)
    if "below" in orders:
        return Verdict("not reproduced", reason)
    return Verdict("not decided" if "unclear" in orders else "reproduced", reason)


def _no_need_of_norm(e: Evidence) -> Verdict:
    networks = _without_norm(e, [name for name in ACTIVATIONS if name.startswith("b")])
    texts = [
        e.entry("table1", depth, name, "valid_bpc")
        for depth, row in e.seeds("table1")[0].items()
        for name in ("brelu", "belu")
        if name in row
    ]
    runs, lost = sum(len(entry.ours) for entry in texts), sum(len(entry.ours) - len(entry.numbers) for entry in texts)
    reason = f"of {runs} bipolar runs on text {lost} diverged; {_errors_with_and_without(networks)}"
    for row, norm in networks.values():
        for entry in row.values():
            e.show(entry, norm)
    entries = [entry for row, _ in networks.values() for entry in row.values()]
    if any(diverged(entry) for entry in (*texts, *entries)):
        return Verdict("not reproduced", reason)
    if lost or not all(all_converged(entry) for entry in entries):
        return Verdict("not decided", reason)
    norms = {network: norm.mean for network, (_, norm) in networks.items()}
    if any(norm is None or norm > USEFUL for norm in norms.values()):
        return Verdict("not decided", f"{reason}; with batch norm there is no useful error either")
    useful = all(
        (entry.mean or 0.0) <= min(USEFUL, 2 * (norms[network] or 0.0))
        for network, (row, _) in networks.items()
        for entry in row.values()
    )
    return Verdict("reproduced" if useful else "not reproduced", reason)


CLAIMS = [
    Claim(
        "rates",
        "On CIFAR-10 bipolar activations allow higher learning rates, up to 64 times.",
        where="Table 5",
        items=("table5",),
        rule=(
            "the search, which halves, finds at least four times the rate for one bipolar version, and a lower one for "
            "none; the claim fails if it finds more than twice the rate for none. In one of the two readings of the "
            "shortcut"
        ),
        decide=_in_either_reading(_rates),
    ),
    Claim(
        "errors",
        "On CIFAR-10 bipolar activations reach a lower error.",
        where="Table 5",
        items=("table5",),
        rule=(
            f"the test error is lower for every bipolar version, in one of the two readings of the shortcut; margin: "
            f"{ERROR}"
        ),
        decide=_in_either_reading(_errors),
    ),
    Claim(
        "batch norm",
        "On CIFAR-10 neither network beats its version with batch norm.",
        where="Section on CIFAR-10",
        items=("table5",),
        rule=f"no test error without batch norm is lower than with it; margin: {ERROR}",
        decide=_batch_norm_is_better,
    ),
    Claim(
        "no norm",
        "With bipolar activations and LSUV, normalisation layers are not needed.",
        where="Abstract, Tables 1 and 5",
        items=("table5", "table1"),
        rule=(
            f"all bipolar networks converge, on text and on images, and on images to an error of at most {USEFUL:g} %, "
            f"half of a guess's, and at most twice that with batch norm; undecided while the latter is above "
            f"{USEFUL:g} %"
        ),
        decide=_no_need_of_norm,
    ),
]

ITEM = Training(
    name="table5",
    title="Table 5: CIFAR-10 test error (%) without batch norm",
    about=(
        "Wide ResNets (wrn) and Oriented Response Networks (orn) without batch norm, started by LSUV. At the paper's "
        "scale the learning rate is searched for: from 0.08, halved whenever training diverges. At the scale small it "
        "is that of the fast recipe, which pins each filter at the norm that LSUV gave it. With a clean shortcut, "
        "which carries x, plain and bipolar Wide ResNets are the same in distribution: LSUV measures the outputs of "
        "convolutions, so by the sign symmetry the start of one is as likely as that of the other, and they train "
        "alike. The paper does not say what its shortcuts carry; in the columns named rectified they carry f(x), as an "
        "activation in place makes it. Batch norm: the same network with it and ReLU, at its own rate. Published "
        "are the errors that the paper quotes."
    ),
    claims=CLAIMS,
    published=PUBLISHED,
    runs=runs,
    collect=collect,
    tables=tables,
)
