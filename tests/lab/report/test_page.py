"""The page in a browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


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
        images = page.evaluate("[...document.images].map(i => [i.naturalWidth > 0, i.getBoundingClientRect().width])")
        assert len(images) == 2
        assert all(loaded and shown > 500 for loaded, shown in images)  # large enough to read, if need be by scrolling
        assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert dark == (scheme == "dark")
        assert len(page.screenshot()) > 10_000
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
