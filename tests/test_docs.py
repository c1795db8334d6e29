"""Documentation whose links lead somewhere, and whose quotes are in the records."""

import json
import re
from pathlib import Path

import pytest

from bipolar.lab.training.journal import duration
from bipolar.lab.training.start import lineage
from tests.helpers.paths import ROOT

PAGES = sorted(path for glob in ("*.md", "docs/**/*.md", "results/*.md", "benchmarks/*.md") for path in ROOT.glob(glob))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made on the web."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    """The targets of a page's links, without those to the network."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"\w+:", target)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_or_a_heading(page: Path) -> None:
    for target in links(page):
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


def test_the_readme_quotes_the_recorded_language_model() -> None:
    """Its error and its time, all stages together, and the beginning of its sample."""
    directory = ROOT / "results/ptb-36x256"
    values, result = (json.loads((directory / f"{name}.json").read_text("utf-8")) for name in ("config", "result"))
    seconds = result["seconds"] + sum(stage["seconds"] for stage in lineage(values))
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"for {duration(seconds)} on one core: {result['test_bpc']:.3f} bits per character" in readme
    sample = (directory / "README.md").read_text(encoding="utf-8").split("```text\n")[-1]
    quoted = next(text for text in re.findall(r"```text (.*?) ```", readme) if text.startswith("the "))
    assert " ".join(sample.split()).startswith(quoted)


def test_every_page_is_within_two_clicks_of_the_readme() -> None:
    def one_click(pages: set[Path]) -> set[Path]:
        targets = {(page.parent / link.partition("#")[0]).resolve() for page in pages for link in links(page)}
        return {target for target in targets if target.suffix == ".md"}

    first = one_click({ROOT / "README.md"})
    assert set(PAGES) - {ROOT / "README.md"} <= first | one_click(first)


@pytest.mark.parametrize("name", ["methods.md", "limits.md"])
def test_quotes_are_from_the_records(name: str) -> None:
    """Word for word: a record that grows, or a verdict that changes, changes the page."""
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    recorded = (ROOT / "docs/paper.md").read_text(encoding="utf-8")
    quotes = [" ".join(quote.split()) for quote in re.findall(r"^ *> (.+)$", page, flags=re.MULTILINE)]
    assert quotes or name == "limits.md"
    assert [quote for quote in quotes if quote not in recorded] == []
