"""Report of a symmetry analysis, node by node."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bipolar._tools.table import text_table


@dataclass(frozen=True)
class SymmetryRow:
    """A node: a call of a function within a module, and what it does to the signs.

    ``flipped`` is the number of channels whose sign is -1 in its output, in the network with flipped weights. A node
    with a ``reason`` breaks the symmetry, or is an activation that has to stay as it is because another does.
    """

    name: str
    function: str
    flipped: int = 0
    breaks: bool = False
    reason: str = ""


@dataclass
class SymmetryReport:
    """Whether a model with bipolar activations is a plain one with some weights' signs flipped; prints as a table.

    ``holds`` is the answer for the whole model. ``activations`` are those that the question is about, each with the
    reason if it cannot be folded away; ``rows`` are all nodes in the order in which they ran; ``notes`` say what else a
    reader should know.
    """

    activations: dict[str, str]
    rows: list[SymmetryRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not any(self.activations.values())

    @property
    def broken_by(self) -> list[SymmetryRow]:
        """The nodes that break the symmetry."""
        return [row for row in self.rows if row.breaks]

    def __iter__(self) -> Iterator[SymmetryRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        rows = [(r.name or "(model)", r.function, r.flipped or None, r.reason) for r in self.rows]
        return "\n".join([self.summary(), "", text_table(["module", "function", "flipped", "why not"], rows)])

    def summary(self) -> str:
        """The answer in a few sentences."""
        total, refused = len(self.activations), [name for name, reason in self.activations.items() if reason]
        if not total:
            verdict = "No activation here has a plain and a bipolar version: there is nothing to ask."
        elif not refused:
            which = "its activation" if total == 1 else f"all {total} activations"
            verdict = (
                f"The symmetry holds for {which}: bipolar, the network is the plain one with some weights' signs "
                "flipped. Bipolar activations can change what an initialiser measures, and nothing else."
            )
        else:
            verdict = (
                f"The symmetry is broken for {len(refused)} of {total} activation{'s' * (total > 1)}: "
                "there a bipolar network is not a plain one with flipped weights."
            )
        reasons = [f"- {name}: {self.activations[name]}" for name in refused]
        return "\n".join([verdict, *reasons, *self.notes])
