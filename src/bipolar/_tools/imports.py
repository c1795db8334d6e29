"""Classes of modules that may not have been imported."""

import sys


def loaded(module: str, name: str) -> tuple[type, ...]:
    """A class for ``isinstance`` if its module has been imported: no object can be of it before."""
    return (getattr(sys.modules[module], name),) if module in sys.modules else ()
