"""An object whose pickle does something when it is loaded."""

import os
from pathlib import Path
from typing import Any


class Harmful:
    """Makes a directory when its pickle is loaded: it was executed if the directory is there."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)
