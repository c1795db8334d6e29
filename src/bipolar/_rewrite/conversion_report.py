"""Report of a conversion, module by module, from which it can be repeated."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from bipolar._rewrite.steps import Step
from bipolar._tools.table import text_table

#: Stands for the new module where there is none.
LEFT = "left"
#: Of the data that :meth:`ConversionReport.to_dict` makes.
VERSION = 1


@dataclass(frozen=True)
class ConversionRow:
    """A module, or a function that one calls: what it was, what it is now (or "left"), and why."""

    name: str
    before: str
    after: str
    note: str = ""


@dataclass
class ConversionReport:
    """What :func:`convert` changed and what it left, in the order of the model; prints as a table.

    ``report[0]`` is a row by its number, ``report["layers.1"]`` the first one of a module.
    """

    rows: list[ConversionRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list, repr=False)

    @property
    def changed(self) -> list[ConversionRow]:
        """The rows of what was changed."""
        return [row for row in self.rows if row.after != LEFT]

    @property
    def left(self) -> list[ConversionRow]:
        """The rows of what was left as it was, each with the reason."""
        return [row for row in self.rows if row.after == LEFT]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, for a JSON file: ``bipolar.convert(model, like=data)`` repeats the conversion."""
        data = asdict(self)
        return {"version": VERSION, **data}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ConversionReport":
        """The report that :meth:`to_dict` made data of."""
        if not isinstance(data, Mapping) or data.get("version") != VERSION:
            raise ValueError(f"like: expected a report, or what its to_dict() made, of version {VERSION}, got {data!r}")
        return cls([ConversionRow(**row) for row in data["rows"]], list(data["notes"]), list(data["steps"]))

    def __iter__(self) -> Iterator[ConversionRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: str | int) -> ConversionRow:
        if isinstance(key, int):
            return self.rows[key]
        for row in self.rows:
            if row.name == key:
                return row
        raise KeyError(key)

    def __str__(self) -> str:
        table = text_table(["module", "before", "after", "note"], [(r.name, r.before, r.after, r.note) for r in self])
        return "\n".join([table, *self.notes])


def conversion_report(model: nn.Module) -> ConversionReport:
    """The report of the conversion that made a model; also its attribute ``conversion_report``.

    Examples::

        >>> model = bipolar.convert(nn.Sequential(nn.Linear(4, 8), nn.ReLU()))
        >>> bipolar.conversion_report(model)["1"].after
        'BReLU(dim=-1)'
    """
    report = getattr(model, "conversion_report", None)
    if not isinstance(report, ConversionReport):
        raise ValueError(f"model: {type(model).__name__} was not made by bipolar.convert, and has no report")
    return report
