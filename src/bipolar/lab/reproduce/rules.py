"""Rules that several claims share: margins, readings of training curves, and comparisons.

Divergence can be seen at any scale. Its absence decides a claim only at the paper's scale.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bipolar.lab.reproduce.outcomes import DNC, Results
from bipolar.lab.reproduce.tables import Entry
from bipolar.lab.reproduce.verdicts import (
    Evidence,
    Margin,
    Order,
    Verdict,
    all_converged,
    compare,
    diverged,
    show,
)

BPC = Margin(0.02, 0.05, "BPC")
#: For means over all steps of two runs with the same random numbers, which are less noisy than their ends.
BPC_OF_A_CURVE = Margin(0.01, 0.02, "BPC")
ERROR = Margin(1.0, 5.0, "per cent points")


def decided_by(orders: Iterable[Order], wanted: Order, reason: str) -> Verdict:
    """Reproduced if all comparisons come out as wanted, not decided if some do or some are unclear."""
    found = list(orders)
    if all(order == wanted for order in found):
        return Verdict("reproduced", reason)
    return Verdict("not decided" if "unclear" in found or wanted in found else "not reproduced", reason)


def decided_if(holds: bool, reason: str, *orders: Order) -> Verdict:
    """Reproduced if the condition holds; if not, not decided where one of the comparisons behind it is unclear."""
    if holds:
        return Verdict("reproduced", reason)
    return Verdict("not decided" if "unclear" in orders else "not reproduced", reason)


def end_of_run(e: Evidence, item: str, name: str, key: str) -> Entry:
    """A final value of a run in the results of :func:`~bipolar.lab.reproduce.curves.train_curves`."""

    def value(results: Results) -> float | str | None:
        run = results.get(name)
        found = None if run is None else run.get(key)
        if run is None or found is None:
            return None if run is None or run.get("status", "finished") == "finished" else DNC
        return DNC if run.get("status", "finished") != "finished" or isinstance(found, str) else float(found)

    return e.entry_of(item, f"{name} / {key}", value)


def mean_of_curve(e: Evidence, item: str, name: str) -> Entry:
    """The mean training loss of a run over all its steps: the faster it falls, the lower."""

    def value(results: Results) -> float | str | None:
        run: dict[str, Any] | None = results.get(name)
        if run is None or not run.get("train_bpc"):
            return None
        if run.get("status", "finished") != "finished":
            return DNC
        losses = [float(loss) for _, loss in run["train_bpc"]]
        return sum(losses) / len(losses)

    return e.entry_of(item, f"{name} / train_bpc", value)


def only_plain_diverges(item: str, names: Sequence[str], *path: str, see: str = "") -> Callable[[Evidence], Verdict]:
    """A rule: every plain activation of ``names`` diverges, and none of their bipolar versions does.

    Args:
        item: the item whose results decide
        names: plain activations
        path: the keys before the activation's in the results
        see: words to add if all converge
    """

    def decide(e: Evidence) -> Verdict:
        plain = {name: e.entry(item, *path, name, "valid_bpc") for name in names}
        flipped = {f"b{name}": e.entry(item, *path, f"b{name}", "valid_bpc") for name in names}
        reason = "validation BPC: " + "; ".join(f"{name} {show(entry)}" for name, entry in (plain | flipped).items())
        if not all(all_converged(entry) for entry in flipped.values()):
            return Verdict("not reproduced", reason)
        if all(diverged(entry) for entry in plain.values()):
            return Verdict("reproduced", reason)
        if e.scale(item) != "paper":
            smaller = "these networks are smaller and their runs shorter than the paper's, so this does not refute it"
            return Verdict("not decided", f"{reason}; all converge here, but {smaller}{see}")
        return Verdict("not reproduced", reason + see)

    return decide


def beats(item: str, rival: float, name: str) -> Callable[[Evidence], Verdict]:
    """A rule: the test error of BELU is below a published one."""

    def decide(e: Evidence) -> Verdict:
        entry = e.entry(item, "belu", "test_bpc")
        reason = f"test BPC {show(entry)}, against {rival} of {name}"
        return decided_by([compare(entry, Entry([rival]), Margin(0.005, 0.005, "BPC"))], "below", reason)

    return decide
