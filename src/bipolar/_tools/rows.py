"""A report's rows as a sequence that is read by number and by name."""

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar, overload


class Named(Protocol):
    """A row with a name."""

    @property
    def name(self) -> str: ...


Row = TypeVar("Row", bound=Named)


class NamedRows(Generic[Row]):
    """Length, iteration and ``report[0]``, ``report[-3:]``, ``report["layers.0"]`` for a report with ``_rows``."""

    @property
    def _rows(self) -> Sequence[Row]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    @overload
    def __getitem__(self, key: int | str) -> Row: ...

    @overload
    def __getitem__(self, key: slice) -> Sequence[Row]: ...

    def __getitem__(self, key: int | slice | str) -> Row | Sequence[Row]:
        """A row by its number or its name, or a list of rows by a slice."""
        if not isinstance(key, str):
            return self._rows[key]
        for row in self._rows:
            if row.name == key:
                return row
        raise KeyError(f"{key!r} is none of {', '.join(row.name for row in self._rows)}")
