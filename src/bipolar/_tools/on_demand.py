"""Packages that import their modules when one of their names is used."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def on_demand(
    package: str, modules: Mapping[str, Sequence[str] | None]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: the name of the package
        modules: for each of its modules the names that the package has from it; None for its ``__all__``, for which it
            has to be imported. A module is an attribute itself, unless its name begins with an underscore
    """

    def imported(module: str) -> Any:
        return import_module(f"{package}.{module}")

    def provided(module: str) -> Sequence[str]:
        names = modules[module]
        found: Sequence[str] = imported(module).__all__ if names is None else names
        return found

    def names() -> list[str]:
        shown = {name for name in modules if not name.startswith("_")}
        return sorted(shown.union(*map(provided, modules)))

    def attribute(name: str) -> Any:
        if name == "__all__":
            return names()
        if name in modules:
            return imported(name)
        for module in () if name.startswith("__") else modules:
            if name in provided(module):
                value = getattr(imported(module), name)
                setattr(sys.modules[package], name, value)  # the next time, Python finds it by itself
                return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])

    return attribute, lambda: sorted({*vars(sys.modules[package]), *names()})
