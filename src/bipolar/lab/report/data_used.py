"""The data sets behind a record, and whether they are those of the paper."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bipolar.lab.reproduce.item import Computation, Item, Training

#: The data sets in words.
WORDS = {
    "ptb": "Penn Treebank",
    "text8": "Text8",
    "text8-74M": "the first 74 million characters of Text8",
    "cifar10": "CIFAR-10",
    "python-docs": "Python's documentation",
    "digits": "scikit-learn's digits",
}


def other_data(item: Item, record: Mapping[str, Any]) -> str:
    """The data sets of a record in words, if they are not all those of the paper; else nothing."""
    runs = (record.get("runs") or {}).values()
    configs = [run["config"] for run in runs] or [record.get("configuration") or {}]
    used = list(dict.fromkeys(Path(config["data"]).name for config in configs if "data" in config))
    other = not set(used) <= _of_paper(item)
    return " and ".join(WORDS.get(name, name) for name in used) if other else ""


def _of_paper(item: Item) -> set[str]:
    if isinstance(item, Training):
        return {config.data for config in item.runs("paper").values()}
    found = item.configuration("paper").get("data") if isinstance(item, Computation) else None
    return set() if found is None else {str(found)}
