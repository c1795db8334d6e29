"""Documentation whose links lead somewhere."""

import json
import re
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

PAGES = sorted(path for folder in (".", "docs", "results", "benchmarks") for path in (ROOT / folder).glob("*.md"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made on the web."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_or_a_heading(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


def test_the_readme_quotes_the_recorded_run() -> None:
    """Shares of images that are right, of the network in ``results/cifar10-conv``."""
    result = json.loads((ROOT / "results/cifar10-conv/result.json").read_text(encoding="utf-8"))
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    right = [f"{100 - result[name]:.1f} %" for name in ("views_test_error", "test_error")]
    assert f"{right[0]} of the test images right over several views of each, {right[1]} over one" in readme
