"""Records: one JSON file for each item, with its results by seed."""

import math
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bipolar._tools.files import read_json
from bipolar.lab.errors import UsageError
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.scales import SCALES


def record_path(directory: Path, item: str) -> Path:
    return directory / f"{item}.json"


def read_record(directory: Path, item: str) -> dict[str, Any] | None:
    """The record of an item, or None if it is missing or damaged."""
    try:
        values = read_json(record_path(directory, item))
        whole = values["scale"] in SCALES and isinstance(values["results"], dict)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return values if whole else None


@contextmanager
def as_recorded(*paths: Path) -> Iterator[None]:
    """Turns the errors of a block that reads records into one that names them: they may be of another's making."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"{', '.join(map(str, paths))}: not as bipolar reproduce writes it ({type(error).__name__} in "
            f"{Path(where.filename).name}, line {where.lineno}: {str(error)[:200]})"
        ) from error


def by_seed(record: Mapping[str, Any]) -> dict[str, Results]:
    """The results by seed; those of a computation, which has no seeds, under an empty name."""
    return record.get("by_seed") or {"": record["results"]}


def results_of(record: Mapping[str, Any]) -> list[Results]:
    """The results of each seed."""
    return list(by_seed(record).values())


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values of both; where both have one, the new."""
    return {**old} | {
        key: merged(old[key], value) if isinstance(value, Mapping) and isinstance(old.get(key), Mapping) else value
        for key, value in new.items()
    }


def finite(value: Any) -> Any:
    """The same values with ``inf`` and ``nan`` as words, because JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    return [finite(part) for part in value] if isinstance(value, list | tuple) else value
