"""Several ``bipolar`` commands in one process: ``python -m tests.helpers.several_commands … then …``."""

import sys
from itertools import groupby

from bipolar.lab.cli import main

if __name__ == "__main__":
    for separates, words in groupby(sys.argv[1:], key=lambda word: word == "then"):
        if not separates:
            main(list(words))
