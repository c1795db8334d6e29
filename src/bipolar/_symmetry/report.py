"""Report of a symmetry analysis, node by node."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import overload

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
    reason if it is not folded away; ``rows`` are all nodes in the order in which they ran; ``notes`` say what else a
    reader should know. ``counter_examples`` are numbers that show which activations cannot be folded away; for others
    with a reason it is only not shown that they can. ``report[0]`` is a row, ``report["name"]`` those of a module.
    """

    activations: dict[str, str]
    rows: list[SymmetryRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counter_examples: dict[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether every activation can be folded away."""
        return not any(self.activations.values())

    @property
    def cannot_be(self) -> list[str]:
        """The activations that cannot be folded away, by a counter-example."""
        return list(self.counter_examples)

    @property
    def not_shown(self) -> list[str]:
        """The activations of which it is not shown that they can, or cannot, be folded away."""
        return [name for name, reason in self.activations.items() if reason and name not in self.counter_examples]

    @property
    def broken_by(self) -> list[SymmetryRow]:
        """The nodes that break the symmetry, or are not shown to keep it."""
        return [row for row in self.rows if row.breaks]

    def __iter__(self) -> Iterator[SymmetryRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, key: int) -> SymmetryRow: ...

    @overload
    def __getitem__(self, key: str | slice) -> list[SymmetryRow]: ...

    def __getitem__(self, key: int | str | slice) -> SymmetryRow | list[SymmetryRow]:
        if not isinstance(key, str):
            return self.rows[key]
        found = [row for row in self.rows if row.name == key]
        if not found:
            raise KeyError(f"{key!r} is no module that ran; those that did: {', '.join(self._modules())}")
        return found

    def _modules(self) -> list[str]:
        return list(dict.fromkeys(repr(row.name) for row in self.rows))

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
            verdict = f"The symmetry is shown for {total - len(refused)} of {total} activation{'s' * (total > 1)}."
        parts = [verdict]
        for names, heading in (
            (self.cannot_be, "cannot be plain, with signs of weights flipped"),
            (self.not_shown, "not shown to be plain with signs of weights flipped, nor that it cannot be"),
        ):
            if names:
                parts += [f"{len(names)} {heading}:", *(f"- {name}: {self._why(name)}" for name in names)]
        return "\n".join([*parts, *self.notes])

    def _why(self, name: str) -> str:
        reason, example = self.activations[name], self.counter_examples.get(name)
        return f"{reason}; {example}" if example else reason
