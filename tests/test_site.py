"""The site: it builds strictly, reads without a network, and shows its formulas."""

import json
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

#: Builds one site after another, and prints the code and the messages of each.
BUILD = """
import contextlib, io, json, sys
from sphinx.cmd.build import main

told = []
for options in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(options)
    told.append((code, errors.getvalue()))
print(json.dumps(told))
"""


def build(sites: dict[Path, Path]) -> list[tuple[int, str]]:
    """What ``make docs`` does, from each source into a directory; in one process, whose start takes seconds."""
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-c", f"{ROOT}/docs"]
    commands = [[*options, "-d", f"{out}/doctrees", str(source), f"{out}/site"] for source, out in sites.items()]
    told = subprocess.run([sys.executable, "-c", BUILD, json.dumps(commands)], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return [(code, errors) for code, errors in json.loads(told.stdout)]


@pytest.mark.long
def test_the_site_and_one_with_broken_links(tmp_path: Path) -> None:
    broken = tmp_path / "source"
    (broken / "docs").mkdir(parents=True)
    (broken / "docs/index.md").write_text("# Start\n\n[a page](nowhere.md), {py:func}`bipolar.nothing`, and more.\n")
    (code, errors), (code_of_broken, errors_of_broken) = build({ROOT: tmp_path, broken: tmp_path / "broken"})
    assert code == 0, errors
    assert code_of_broken != 0
    assert "nowhere.md" in errors_of_broken
    assert "bipolar.nothing" in errors_of_broken
    assert "bipolar.lsuv_ is not in docs/reference" in errors_of_broken
    the_site_is_whole(tmp_path / "site")


def the_site_is_whole(site: Path) -> None:
    pages = {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert "url=docs/index.html" in pages["index.html"]
    for name, text in pages.items():
        loaded = re.findall(r'<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)="([^"]+)"', text)
        assert loaded or name == "index.html"
        assert not [address for address in loaded if address.startswith(("http", "//"))], name
    assert all(f'id="bipolar.{name}"' in "".join(pages.values()) for name in ("lsuv_", "BReLU", "optim.pin", "load"))
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("the site is whole, but nobody looked at it: there is no chromium; apt-get install chromium")
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


def test_every_public_name_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    undocumented = runpy.run_path(str(ROOT / "docs/conf.py"))["undocumented"]
    missing = undocumented(set())
    assert {"bipolar.lsuv_ is not in docs/reference", "bipolar.optim.pin is not in docs/reference"} <= set(missing)
    assert not [sentence for sentence in missing if "docstring" in sentence]
    monkeypatch.setattr(bipolar.lsuv_, "__doc__", None)
    assert "bipolar.lsuv_ has no docstring" in undocumented({"bipolar.lsuv_"})
