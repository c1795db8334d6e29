"""The report of LSUV, and its error."""

from dataclasses import dataclass, field

from torch import nn

from bipolar._tools.rows import NamedRows
from bipolar._tools.table import text_table


class LSUVError(RuntimeError):
    """LSUV could not initialise a model; the message names the layer and the reason."""


@dataclass(frozen=True)
class LSUVRow:
    """One layer: the statistic before and after, the factor by which the norm of its weight grew, how many measurements
    were taken, and where: at the layer's output, or after which activation.

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


def kind_of(layer: nn.Module) -> str:
    """The type of a layer, for its row."""
    return type(layer).__name__.removeprefix("Parametrized")


@dataclass
class LSUVReport(NamedRows[LSUVRow]):
    """The rows of all layers, in the order of execution; prints as a table.

    It is a sequence of them: ``report[0]`` is the first, ``report["head"]`` the one of that name. ``scaled`` names the
    parameters whose size LSUV chose, as ``model.named_parameters()`` does.
    """

    target: str
    at: str
    rows: list[LSUVRow] = field(default_factory=list)
    scaled: list[str] = field(default_factory=list)

    @property
    def _rows(self) -> list[LSUVRow]:
        return self.rows

    def __str__(self) -> str:
        header = ["layer", "kind", "before", "after", "scale", "rounds", "at", "note"]
        rows = [(r.name, r.kind, r.before, r.after, r.scale, r.rounds, r.at, r.note) for r in self.rows]
        return f"{self.target.replace('_', ' ')}, measured at the {self.at}\n\n{text_table(header, rows)}"
