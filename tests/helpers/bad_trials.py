"""Trials that end in every way there is, for the tests of torture."""

import os
import time
from pathlib import Path
from random import Random

from torture.trials import NotTriedError


def by_number(random: Random, directory: Path) -> str:
    """A trial whose number, which is in the name of its directory, says how it ends."""
    number = int(directory.name.rpartition("-")[2])
    if number == 1:
        raise ValueError(f"a value of {random.random()}")
    if number == 2:
        os._exit(1)
    if number == 3:
        time.sleep(60)
    if number == 4:
        raise NotTriedError("not here")
    return f"drew {random.randrange(1000)}"
