"""``python -m bipolar.lab``: the same as the ``bipolar`` command."""

from bipolar.lab.cli import main

main()
