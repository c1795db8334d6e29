"""The paper's two searches for dropout rates, on networks of 4 and 36 layers.

The first varies all three rates of ReLU and BELU networks over {0, 0.025, 0.05}: 108 runs, at the paper's scale only.
It found 0.025 for the recurrent and the block dropout, and a best rate between layers that falls with depth. The second
keeps those two rates, and varies the rate between layers of ReLU networks.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bipolar.lab.paper import table1
from bipolar.lab.reproduce.item import Training
from bipolar.lab.reproduce.outcomes import DNC, Outcome, Results
from bipolar.lab.reproduce.rules import BPC
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Entry, Table, over
from bipolar.lab.reproduce.verdicts import Claim, Evidence, MissingError, Verdict
from bipolar.lab.training.text import TextConfig

DEPTHS = (4, 36)
EXPLORED = (0.0, 0.025, 0.05)
RATES = (0.025, 0.05, 0.1)


def runs(scale: Scale) -> dict[str, TextConfig]:
    explored = itertools.product(DEPTHS, ("relu", "belu"), EXPLORED, EXPLORED, EXPLORED)
    rates = itertools.product(DEPTHS, ("relu",), RATES, (table1.OTHER_RATES,), (table1.OTHER_RATES,))
    found = {}
    for depth, nonlinearity, *three in (*rates, *(explored if scale == "paper" else ())):
        kinds = dict(zip(("dropout", "recurrent_dropout", "block_dropout"), three, strict=True))
        config = table1.base(scale, depth)
        name = ", ".join((f"{depth} layers", nonlinearity, *(f"{kind} {rate}" for kind, rate in kinds.items())))
        found[name] = replace(config, model=replace(config.model, nonlinearity=nonlinearity, **kinds))
    return found


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    return {name: outcome.result.get("best_valid_bpc", DNC) for name, outcome in outcomes.items()}


def tables(seeds: Sequence[Results]) -> list[Table]:
    rows = {name: [Entry(over(seeds, name))] for name in seeds[0]}
    return [Table("Validation error", ["BPC"], rows)]


def _dropout(e: Evidence) -> Verdict:
    good: dict[str, set[float]] = {}
    for depth in ("4 layers", "36 layers"):
        entries = {
            float(name.split(", ")[2].split()[1]): e.entry("dropout", name)
            for name in e.seeds("dropout")[0]
            if name.startswith(f"{depth}, relu, ") and name.endswith("recurrent_dropout 0.025, block_dropout 0.025")
        }
        means = {rate: entry.mean for rate, entry in entries.items() if entry.mean is not None}
        if not means:
            raise MissingError(f"no run of {depth} has converged")
        margin = BPC.at(e.scale("dropout"))
        least = margin.one if any(len(entry.ours) < 2 for entry in entries.values()) else margin.several
        good[depth] = {rate for rate, mean in means.items() if mean <= min(means.values()) + least}
    reason = "rates within the margin of the best: " + ", ".join(
        f"{depth}: {', '.join(f'{rate:g}' for rate in sorted(rates))}" for depth, rates in good.items()
    )
    shallow, deep = good["4 layers"], good["36 layers"]
    if min(shallow) > max(deep):
        return Verdict("reproduced", reason)
    return Verdict("not reproduced" if max(shallow) < min(deep) else "not decided", reason)


CLAIMS = [
    Claim(
        "dropout",
        "The best dropout rate between layers falls with depth.",
        where="Section on Penn Treebank",
        items=("dropout",),
        rule=(
            f"all rates of 4 layers that are within the margin of the best are higher than those of 36; margin: {BPC}"
        ),
        decide=_dropout,
        least="paper",
    ),
]

ITEM = Training(
    name="dropout",
    title="The best dropout rates, by depth (validation BPC)",
    about="Between layers, on the recurrence, and of whole blocks; at the small scales only the first of them varies.",
    claims=CLAIMS,
    published={
        "best rate between layers": {"4 layers": 0.1, "36 layers": 0.05},
        "best other rates": table1.OTHER_RATES,
    },
    runs=runs,
    collect=collect,
    tables=tables,
)
