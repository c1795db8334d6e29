"""Report of a conversion, module by module."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bipolar._tools.table import text_table

#: Stands for the new module where there is none.
LEFT = "left"


@dataclass(frozen=True)
class ConversionRow:
    """A module, or a function that one calls: what it was, what it is now (or "left"), and why."""

    name: str
    before: str
    after: str
    note: str = ""


@dataclass
class ConversionReport:
    """What :func:`convert` changed and what it left, in the order of the model; prints as a table."""

    rows: list[ConversionRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def changed(self) -> list[ConversionRow]:
        return [row for row in self.rows if row.after != LEFT]

    @property
    def left(self) -> list[ConversionRow]:
        return [row for row in self.rows if row.after == LEFT]

    def __iter__(self) -> Iterator[ConversionRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> ConversionRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def __str__(self) -> str:
        table = text_table(["module", "before", "after", "note"], [(r.name, r.before, r.after, r.note) for r in self])
        return "\n".join([table, *self.notes])
