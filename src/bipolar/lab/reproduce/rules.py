"""Rules that several claims share: margins, readings of training curves, and comparisons.

Divergence can be seen at any scale. Its absence decides a claim only at the paper's scale.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bipolar.lab.reproduce.comparisons import Margin, Order
from bipolar.lab.reproduce.outcomes import DNC, Results
from bipolar.lab.reproduce.tables import Entry
from bipolar.lab.reproduce.verdicts import Evidence, MissingError, Verdict, named_by

#: For validation and test errors of language models.
BPC = Margin(0.02, 0.05, "BPC", paper=0.01)
#: For means over all steps of two runs with the same random numbers, which are less noisy than their ends.
BPC_OF_A_CURVE = Margin(0.01, 0.02, "BPC", paper=0.01)
ERROR = Margin(1.0, 5.0, "per cent points", paper=1.0)
#: The words of a verdict that rests on the absence of divergence below the paper's scale.
SMALLER = "these networks are smaller and their runs shorter than the paper's, so this does not refute it"


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


def lowest(e: Evidence, item: str, prefix: str) -> tuple[str, Entry]:
    """The run of lowest mean test error among those whose name begins with a prefix."""
    entries = {name: e.entry(item, name, "test_error") for name in e.seeds(item)[0] if name.startswith(prefix)}
    means = {name: entry.mean for name, entry in entries.items() if entry.mean is not None}
    if not means:
        raise MissingError(f"no run of {item} with {prefix} has converged")
    best = min(means, key=lambda name: means[name])
    return best, entries[best]


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
        if run is not None and run.get("status", "finished") != "finished":
            return DNC
        if run is None or not run.get("train_bpc"):
            return None
        losses = [float(loss) for _, loss in run["train_bpc"]]
        return sum(losses) / len(losses)

    return e.entry_of(item, f"{name} / train_bpc", value)


def entry_of_search(e: Evidence, item: str, name: str, value: Callable[[Results], float | str | None]) -> Entry:
    """As :meth:`Evidence.entry_of`. A search that finds no rate is not repeated: its failure stands for all seeds."""
    first, *others = (value(results) for results in e.seeds(item))
    alone = first == DNC and all(other is None for other in others)
    return named_by(name, Entry([DNC])) if alone else e.entry_of(item, name, value)


def only_plain_diverges(
    item: str,
    names: Sequence[str],
    paths: Callable[[Results], Mapping[str, Sequence[str]]] = lambda results: {"": ()},
    see: str = "",
) -> Callable[[Evidence], Verdict]:
    """A rule: every run of a plain activation of ``names`` diverges, and none of their bipolar versions does.

    It fails if the bipolar versions diverge as often, and at the paper's scale if a plain activation never does. All
    else in between is not decided.

    Args:
        item: the item whose results decide
        names: plain activations
        paths: from the results of the first seed, the keys before the activation's, by a name for the message
        see: words to add if none diverges
    """

    def decide(e: Evidence) -> Verdict:
        places = paths(e.seeds(item)[0])
        if not places:
            raise MissingError(f"{item} has no runs of both {names[0]} and b{names[0]}")
        cells = {
            name: {
                place: replace(e.entry(item, *path, name, "valid_bpc"), name=f"{name}{', ' if place else ''}{place}")
                for place, path in places.items()
            }
            for plain_name in names
            for name in (plain_name, f"b{plain_name}")
        }
        for name, place in ((name, place) for name in names for place in places):
            e.show(cells[f"b{name}"][place], cells[name][place])
        counts = {name: _diverged(entries.values()) for name, entries in cells.items()}
        reason = "diverged: " + ", ".join(f"{name} {lost} of {runs}" for name, (lost, runs) in counts.items())
        reason += "; validation BPC: " + "; ".join(
            f"{entry.name} {entry.text()}" for entries in cells.values() for entry in entries.values()
        )
        plain, flipped = ([counts[start + name] for name in names] for start in ("", "b"))
        if any(lost and lost / runs >= p / of for (lost, runs), (p, of) in zip(flipped, plain, strict=True)):
            return Verdict("not reproduced", reason)
        if not any(lost for lost, _ in flipped) and all(lost == runs for lost, runs in plain):
            return Verdict("reproduced", reason)
        if e.scale(item) == "paper":
            never = any(lost == 0 for lost, _ in plain)
            return Verdict("not reproduced" if never else "not decided", reason)
        none = not any(lost for lost, _ in plain)
        return Verdict("not decided", f"{reason}; {SMALLER}{see if none else ''}")

    return decide


def _diverged(entries: Iterable[Entry]) -> tuple[int, int]:
    """How many runs diverged, and of how many."""
    found = list(entries)
    runs = sum(len(entry.ours) for entry in found)
    return runs - sum(len(entry.numbers) for entry in found), runs


def beats(item: str, rival: float, name: str) -> Callable[[Evidence], Verdict]:
    """A rule: the test error of BELU is below a published one. A shorter run than the paper's cannot refute it."""

    def decide(e: Evidence) -> Verdict:
        entry = e.entry(item, "belu", "test_bpc")
        reason = f"test BPC {entry.text()}, against {rival} of {name}"
        published = Entry([rival] * len(entry.ours), seeds=entry.seeds, name=name)  # without noise of its own
        verdict = decided_by([e.compare(entry, published, Margin(0.005, 0.005, "BPC"))], "below", reason)
        if verdict.status == "reproduced" or e.scale(item) == "paper" or not entry.numbers:
            return verdict
        return Verdict("not decided", f"{reason}; the run is far shorter than the paper's, so this does not refute it")

    return decide
