"""The command that would decide an open claim, and its arithmetic."""

from dataclasses import replace
from typing import cast

from bipolar.lab.paper import ITEMS
from bipolar.lab.reproduce.cost import step_of, steps_of
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.verdicts import Claim, Evidence, Verdict
from bipolar.lab.training.journal import duration

#: The speed of one GPU that the time is stated for, in floating-point operations a second.
GPU = 20e12


def with_remedy(claim: Claim, verdict: Verdict, evidence: Evidence) -> Verdict:
    """A verdict; if it leaves a claim about training open, with the runs that would decide it."""
    known = [name for name in claim.items if isinstance(ITEMS.get(name), Training)]
    if verdict.status != "not decided" or not known:
        return verdict
    missing = any(name not in evidence.records or not evidence.records[name].get("complete") for name in known)
    scale: Scale = claim.least if missing else "paper"
    command = f"bipolar reproduce {' '.join(known)} --scale {scale}"
    flops = sum(_flops(name, scale) for name in known)
    cost = f", {flops / 1e15:,.0f} petaFLOP, {duration(flops / GPU)} of a GPU at {GPU / 1e12:.0f} teraFLOP/s"
    return replace(verdict, reason=f"{verdict.reason}; it would take {command}{cost if scale == 'paper' else ''}")


def _flops(name: str, scale: Scale) -> float:
    """The arithmetic of an item's training, with all its seeds; of a search, that of one attempt."""
    item = cast(Training, ITEMS[name])
    return sum(step_of(config).flops * steps_of(config) for config in item.expected_runs(scale))
