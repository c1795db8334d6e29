"""The examples of the README."""

import re

from tests.helpers.paths import ROOT


def python_examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)


def needs_runs(example: str) -> bool:
    """Whether an example reads the runs that the commands of the README leave."""
    return "bipolar.load(" in example
