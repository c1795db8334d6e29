"""The page in a browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bipolar.lab.paper import ITEMS

#: Texts whose contrast with the background behind them is below 4.5, the least of WCAG for small letters.
FAINT = """() => {
  const channels = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => {
    const linear = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = channels(colour).slice(0, 3).map(c => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    const colour = getComputedStyle(element).backgroundColor, parts = channels(colour);
    const seen = parts.length == 3 || parts[3] > 0;
    return seen ? colour : element.parentElement ? behind(element.parentElement) : "rgb(255, 255, 255)";
  };
  const texts = [...document.querySelectorAll("body *")].filter(e =>
    [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim())
    && e.checkVisibility() && !e.closest("label:has(:disabled)"));
  return texts.filter(e => {
    const [high, low] = [light(getComputedStyle(e).color), light(behind(e))].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05) < 4.5;
  }).map(e => e.outerHTML.slice(0, 200));
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


class TestInABrowser:
    @pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (360, "light"), (360, "dark")])
    def test_it_is_shown_whole(self, browser: Any, reported: Path, width: int, scheme: str) -> None:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        page.goto((reported / "report.html").as_uri())
        assert said == []
        assert page.locator("script").count() == 0
        images = page.evaluate("[...document.images].map(i => [i.naturalWidth > 0, i.getBoundingClientRect().width])")
        assert len(images) == 2
        assert all(loaded and shown > 500 for loaded, shown in images)  # large enough to read, if need be by scrolling
        assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert dark == (scheme == "dark")
        assert len(page.screenshot()) > 10_000
        captions = page.locator("figure figcaption").all_inner_texts()
        assert captions == [ITEMS["figure1"].caption, ITEMS["aliasing"].caption]
        assert page.evaluate(FAINT) == []
        page.close()

    @pytest.mark.parametrize("width", [1200, 360])
    def test_each_claim_is_a_line_with_its_effect(self, browser: Any, reported: Path, width: int) -> None:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto((reported / "report.html").as_uri())
        rows = page.locator("article.row")
        assert rows.count() == sum(len(item.claims) for item in ITEMS.values())
        row = rows.filter(has_text="BSELU networks do about as well as BELU networks.")
        effect = row.locator(".effect").first
        assert effect.get_attribute("aria-label").startswith("validation BPC, 2 seeds: bselu, 36 layers 1.900, ")
        assert effect.locator("svg").count() == 2
        assert effect.locator("svg circle").count() == 4
        inside, outside = (place.bounding_box() for place in (effect.locator("svg").first, row))
        assert inside["width"] > 90
        assert outside["x"] <= inside["x"]
        assert inside["x"] + inside["width"] <= outside["x"] + outside["width"]
        page.close()

    def test_claims_are_filtered_by_their_verdicts(self, browser: Any, reported: Path) -> None:
        page = browser.new_page()
        page.goto((reported / "report.html").as_uri())
        rows = page.locator("article.row")
        every = rows.count()
        for here, recorded in (("reproduced", None), ("not-decided", None), (None, "reproduced"), ("not-decided",) * 2):
            page.locator("#here-" + (here or "all")).check(force=True)
            page.locator("#recorded-" + (recorded or "all")).check(force=True)
            wanted = "article.row" + (f"[data-here={here}]" if here else "")
            wanted += f"[data-recorded={recorded}]" if recorded else ""
            shown = page.locator("article.row:visible").count()
            assert shown == page.locator(wanted).count()
            assert 0 < shown < every
        page.close()

    def test_it_is_printed_in_black_on_white_within_the_paper(self, browser: Any, reported: Path) -> None:
        page = browser.new_page(viewport={"width": 700, "height": 1000}, color_scheme="dark")
        page.goto((reported / "report.html").as_uri())
        page.emulate_media(media="print")
        colours = page.evaluate("['color', 'backgroundColor'].map(name => getComputedStyle(document.body)[name])")
        assert colours == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
        assert page.evaluate("document.documentElement.scrollWidth") <= 700
        assert not page.locator(".filters").is_visible()
        hidden = (
            "[...document.querySelectorAll('details.why')].filter(e => e.getBoundingClientRect().height < 20).length"
        )
        closed = "getComputedStyle(document.querySelector('details.why'), '::details-content').contentVisibility"
        assert page.locator("details.why").count()
        assert page.evaluate(closed) == "visible"  # paper has nothing to click on
        assert page.evaluate(hidden) == 0
        assert page.pdf(format="A4").startswith(b"%PDF")
        page.close()

    def test_links_lead_somewhere(self, browser: Any, reported: Path) -> None:
        page = browser.new_page()
        page.goto((reported / "report.html").as_uri())
        targets = page.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href'))")
        assert "#table1" in targets
        for target in set(targets):
            page.click(f"a[href='{target}'] >> nth=0")
            assert page.evaluate(f"document.querySelector('{target}').getBoundingClientRect().top") < 400
        page.close()
