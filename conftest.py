"""Set-up of all tests, the examples in docstrings among them."""

from typing import Any

import hypothesis
import pytest
import torch

# The same examples in every run: a failure is the change's, not the day's.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests begin first: at the end one would keep the other cores waiting."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def names_of_examples(doctest_namespace: dict[str, Any]) -> None:
    """Examples in docstrings assume these imports, as torch's own do."""
    import bipolar
    import bipolar.functional

    doctest_namespace |= {"torch": torch, "nn": torch.nn, "bipolar": bipolar, "F": bipolar.functional}
