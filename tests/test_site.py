"""The site: it builds strictly, reads without a network, and shows its formulas."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bipolar
from tests.helpers.paths import ROOT


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """What ``make docs`` does."""
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-c", ROOT / "docs", "-d", out / "doctrees"]
    command = [sys.executable, "-m", "sphinx", *options, source, out / "site"]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.long
def test_the_site(tmp_path: Path) -> None:
    built = build(ROOT, tmp_path)
    assert built.returncode == 0, built.stderr
    site = tmp_path / "site"
    pages = {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert "url=docs/index.html" in pages["index.html"]
    for name, text in pages.items():
        loaded = re.findall(r'<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)="([^"]+)"', text)
        assert loaded or name == "index.html"
        assert not [address for address in loaded if address.startswith(("http", "//"))], name
    assert all(f'id="bipolar.{name}"' in "".join(pages.values()) for name in ("lsuv_", "BReLU", "optim.pin", "load"))
    if chromium := shutil.which("chromium") or shutil.which("chromium-browser"):
        look(site, chromium)


def look(site: Path, chromium: str) -> None:
    """Formulas are drawn, pictures are there, nothing comes from the network, nothing sticks out."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shown(browser, site / "docs/reference/initialisation.html", "light", 1200, formulas=20)
        shown(browser, site / "docs/reference/activations.html", "dark", 390, formulas=20)
        shown(browser, site / "docs/guides/diagnosis.html", "dark", 390)
        browser.close()


def shown(browser: Any, path: Path, scheme: str, width: int, formulas: int = 0) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(300_000)  # a crowded machine may take minutes
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
    page.goto(path.as_uri())
    written = page.evaluate("document.querySelectorAll('.math').length")
    assert written >= formulas
    if formulas:
        page.wait_for_function("window.MathJax?.startup?.promise")
        page.evaluate("MathJax.startup.promise")
        assert page.evaluate("document.querySelectorAll('.math mjx-container svg').length") == written
        assert page.evaluate("document.querySelectorAll('[data-mjx-error]').length") == 0
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert said == [], path
    page.close()


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "docs").mkdir(parents=True)
    (source / "docs/index.md").write_text("# Start\n\n[a page](nowhere.md), {py:func}`bipolar.nothing`, and more.\n")
    built = build(source, tmp_path)
    assert built.returncode != 0
    assert "nowhere.md" in built.stderr
    assert "bipolar.nothing" in built.stderr
    assert "bipolar.lsuv_ is not in docs/reference" in built.stderr


def test_every_public_name_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    undocumented = runpy.run_path(str(ROOT / "docs/conf.py"))["undocumented"]
    missing = undocumented(set())
    assert {"bipolar.lsuv_ is not in docs/reference", "bipolar.optim.pin is not in docs/reference"} <= set(missing)
    assert not [sentence for sentence in missing if "docstring" in sentence]
    monkeypatch.setattr(bipolar.lsuv_, "__doc__", None)
    assert "bipolar.lsuv_ has no docstring" in undocumented({"bipolar.lsuv_"})
