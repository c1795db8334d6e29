"""Checks of numbers among arguments; an error names the argument and its value."""

import operator
from typing import SupportsFloat, cast


def check_count(argument: str, value: object, least: int = 1) -> None:
    """Refuses all but a whole number that is large enough."""
    try:
        count = operator.index(value)  # type: ignore[arg-type]  # that is the question
    except TypeError:
        raise TypeError(f"{argument}: expected a whole number, got {value!r}") from None
    if count < least:
        raise ValueError(f"{argument}: expected at least {least}, got {count}")


def check_number(argument: str, value: object) -> None:
    """Refuses all but a real number."""
    if not hasattr(value, "__float__"):
        raise TypeError(f"{argument}: expected a number, got {value!r}")


def check_positive(argument: str, value: object) -> None:
    """Refuses all but a number above 0, and NaN."""
    check_number(argument, value)
    if not float(cast(SupportsFloat, value)) > 0:
        raise ValueError(f"{argument}: expected a positive number, got {value}")
