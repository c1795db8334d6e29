"""The report of LSUV, and its error."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bipolar._tools.table import text_table


class LSUVError(RuntimeError):
    """LSUV could not initialise a model; the message names the layer and the reason."""


@dataclass(frozen=True)
class LSUVRow:
    """One layer: the statistic before and after, the factor its weight was multiplied by, how many measurements were
    taken, and where: at the layer's output, or after which activation.

    ``before`` is the statistic with the weight that LSUV started from, the orthogonal one if it made one. A layer that
    was not changed has a ``note`` that says why, and no figures where it was not measured.
    """

    name: str
    kind: str
    before: float | None = None
    after: float | None = None
    scale: float | None = None
    rounds: int = 0
    at: str = ""
    note: str = ""


@dataclass
class LSUVReport:
    """The rows of all layers, in the order of execution; prints as a table."""

    target: str
    at: str
    rows: list[LSUVRow] = field(default_factory=list)

    def __iter__(self) -> Iterator[LSUVRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> LSUVRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def __str__(self) -> str:
        header = ["layer", "kind", "before", "after", "scale", "rounds", "at", "note"]
        rows = [(r.name, r.kind, r.before, r.after, r.scale, r.rounds, r.at, r.note) for r in self.rows]
        return f"{self.target.replace('_', ' ')}, measured at the {self.at}\n\n{text_table(header, rows)}"
