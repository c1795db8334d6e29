"""The report: what it decides, what it says, that it cannot be made to run anything, and what a browser makes of it."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bipolar.lab.cli import main
from bipolar.lab.errors import UsageError
from bipolar.lab.paper import ITEMS, figure1, symmetry, table2
from bipolar.lab.paper.claims import CLAIMS
from bipolar.lab.report import write_markdown, write_report
from bipolar.lab.report.content import Section
from bipolar.lab.reproduce.comparison import Cell
from bipolar.lab.reproduce.executors import one_after_another
from bipolar.lab.reproduce.item import DNC
from bipolar.lab.reproduce.reproduction import Reproduction
from bipolar.lab.reproduce.verdicts import Evidence, Margin, Verdict, compare
from bipolar.lab.training.text import TextConfig, TextModel
from tests.helpers.paths import ROOT

EVIL = "<script>alert(1)</script>|</td>"
BY_NAME = {claim.name: claim for claim in CLAIMS}


def record(item: str, *seeds: dict[str, Any], scale: str = "small", **more: Any) -> dict[str, Any]:
    by_seed = {str(i + 1): results for i, results in enumerate(seeds)}
    head = {"item": item, "title": ITEMS[item].title, "scale": scale, "complete": True, "seconds": 100.0}
    origin = {"commit": "abc", "machine": "a machine", "versions": {}}
    return {**head, **origin, "published": {}, "results": seeds[0], "by_seed": by_seed, "runs": {}, **more}


def bpc(value: float | str) -> dict[str, Any]:
    return {"valid_bpc": value, "test_bpc": 2.0, "last_train_bpc": 2.0, "width": 64, "seconds": 1.0}


def table1_results(**values: float | str) -> dict[str, Any]:
    names = {"relu": 2.0, "brelu": 1.9, "elu": 1.9, "belu": 1.9, "selu": 1.9, "bselu": 1.9} | values
    return {depth: {name: bpc(value) for name, value in names.items()} for depth in ("4", "36")}


def run_of(loss: float | str) -> dict[str, Any]:
    """A run with a constant training loss, or one that did not converge."""
    if isinstance(loss, str):
        return {"status": loss, "train_bpc": [[1, 2.0]], "last_train_bpc": loss}
    return {"status": "finished", "train_bpc": [[1, loss], [2, loss]], "last_train_bpc": loss}


def curves(**losses: float | str) -> dict[str, Any]:
    return {name: run_of(loss) for name, loss in losses.items()}


def three(relu: float | str, brelu: float | str, second_moment: float | str) -> dict[str, Any]:
    return curves(relu=relu, brelu=brelu) | {"relu, second moment": run_of(second_moment)}


def rates(error: float | str = 50.0, **found: float) -> dict[str, Any]:
    return {"wrn": {name: {"lr": rate, "test_error": error} for name, rate in found.items()}}


DIVERGED = f"{DNC}: the loss is not finite (step 3)"


@pytest.mark.parametrize(
    ("claim", "item", "results", "status"),
    [
        ("elu", "table1", table1_results(elu=DIVERGED), "reproduced"),
        ("elu", "table1", table1_results(), "not decided"),
        ("elu", "table1", table1_results(elu=DIVERGED, belu=DIVERGED), "not reproduced"),
        ("selu", "table1", table1_results(selu=DIVERGED), "reproduced"),
        ("depth", "table1", table1_results() | {"4": {"relu": bpc(1.9), "belu": bpc(1.9)}}, "reproduced"),
        ("depth", "table1", table1_results() | {"4": {"relu": bpc(1.97), "belu": bpc(1.9)}}, "not decided"),
        ("depth", "table1", table1_results(), "not reproduced"),
        ("depth", "table1", table1_results(relu=DIVERGED, belu=DIVERGED), "not decided"),
        ("depth", "table1", {"36": {"relu": bpc(1.9)}}, "not decided"),
        (
            "text8",
            "table3",
            {n: {"valid_bpc": DIVERGED if n in ("relu", "elu") else 2.0} for n in ("relu", "brelu", "elu", "belu")},
            "reproduced",
        ),
        ("text8", "table3", {n: {"valid_bpc": 2.0} for n in ("relu", "brelu", "elu", "belu")}, "not decided"),
        ("smeared", "figure4", {"without skips": {"mean_lag_of_the_lowest_layer": 31.8}}, "reproduced"),
        ("smeared", "figure4", {"without skips": {"mean_lag_of_the_lowest_layer": 3.0}}, "not reproduced"),
        (
            "straightened",
            "figure4",
            {f"{k} skips": {"mean_lag_of_the_lowest_layer": v} for k, v in (("without", 30.0), ("with", 5.0))},
            "reproduced",
        ),
        (
            "skips",
            "figure5",
            {
                "36 layers, no skips": {"last_train_bpc": 4.3},
                "36 layers, skips": {"last_train_bpc": 2.3},
                "4 layers, skips": {"last_train_bpc": 2.9},
            },
            "reproduced",
        ),
        ("faster", "figure6", curves(relu=2.4, brelu=2.3), "reproduced"),
        ("faster", "figure6", curves(relu=2.4, brelu=2.385), "not decided"),
        ("faster", "figure6", curves(relu=2.4, brelu=2.4), "not reproduced"),
        ("faster", "figure6", curves(relu=2.4, brelu=2.6), "not reproduced"),
        ("faster", "figure6", curves(relu=2.4, brelu=DNC), "not reproduced"),
        ("faster", "figure6", curves(relu=DNC, brelu=DNC), "not decided"),
        ("faster elu", "figure6", curves(elu=DNC, belu=2.4), "reproduced"),
        (
            "second moment",
            "figure6",
            three(2.5, 2.3, 2.305),
            "reproduced",
        ),
        (
            "second moment",
            "figure6",
            three(2.5, 2.3, 2.4),
            "not reproduced",
        ),
        ("second moment", "figure6", three(2.3, 2.3, 2.3), "not decided"),
        ("second moment", "figure6", three(DNC, DNC, DNC), "not decided"),
        ("rates", "table5", rates(relu=0.01, brelu=0.04, elu=0.01, belu=0.02), "reproduced"),
        ("rates", "table5", rates(relu=0.01, brelu=0.02, elu=0.01, belu=0.02), "not decided"),
        ("rates", "table5", rates(relu=0.04, brelu=0.04), "not reproduced"),
        ("rates", "table5", rates(error=DNC, relu=0.01, brelu=0.04), "not reproduced"),
        ("errors", "table5", {"wrn": {"relu": {"test_error": 50.0}, "brelu": {"test_error": 44.0}}}, "reproduced"),
        ("errors", "table5", {"wrn": {"relu": {"test_error": 50.0}, "brelu": {"test_error": 47.0}}}, "not decided"),
        ("errors", "table5", {"wrn": {"relu": {"test_error": 50.0}, "brelu": {"test_error": 49.5}}}, "not reproduced"),
        (
            "aliasing",
            "aliasing",
            {
                "elu, right": {"best_valid_bpc": 2.47},
                "belu, right": {"best_valid_bpc": 2.45},
                "elu, after skip": {"best_valid_bpc": 3.9},
            },
            "reproduced",
        ),
        (
            "aliasing",
            "aliasing",
            {
                "elu, right": {"best_valid_bpc": 2.47},
                "belu, right": {"best_valid_bpc": 2.45},
                "elu, after skip": {"status": DNC},
            },
            "reproduced",
        ),
    ],
)
def test_verdicts(claim: str, item: str, results: dict[str, Any], status: str) -> None:
    assert BY_NAME[claim].verdict(Evidence({item: record(item, results)})).status == status


def test_the_shortcut_is_decided_by_seeds() -> None:
    def seed(clean: float, flipped: float, rectified: float) -> dict[str, Any]:
        values = {"relu, clean": clean, "brelu, clean": flipped, "relu, rectified": rectified}
        return {name: {"test_error": value} for name, value in values.items()}

    claim = BY_NAME["shortcut"]
    apart = record("shortcut", seed(50.0, 50.2, 56.0), seed(50.5, 50.1, 55.5), seed(50.1, 50.6, 56.3))
    assert claim.verdict(Evidence({"shortcut": apart})).status == "reproduced"
    noisy = record("shortcut", seed(50.0, 50.2, 56.0), seed(60.5, 58.1, 50.5), seed(40.1, 42.6, 56.3))
    assert claim.verdict(Evidence({"shortcut": noisy})).status == "not decided"
    other = record("shortcut", seed(50.0, 40.2, 56.0), seed(50.5, 40.1, 55.5), seed(50.1, 40.6, 56.3))
    assert claim.verdict(Evidence({"shortcut": other})).status == "not reproduced"


def test_the_best_rate_is_that_with_the_lowest_error() -> None:
    def results(best: dict[int, float]) -> dict[str, Any]:
        others = "recurrent_dropout 0.025, block_dropout 0.025"
        return {
            f"{depth} layers, relu, dropout {rate}, {others}": 1.0 + 3 * abs(rate - best[depth])
            for depth in (4, 36)
            for rate in (0.025, 0.05, 0.1)
        }

    claim = BY_NAME["dropout"]
    for best, status in (({4: 0.1, 36: 0.025}, "reproduced"), ({4: 0.05, 36: 0.05}, "not decided")):
        evidence = Evidence({"dropout": record("dropout", results(best), scale="paper")})
        assert claim.verdict(evidence).status == status


def test_without_runs_or_too_small_nothing_is_decided() -> None:
    for claim in CLAIMS:
        assert claim.verdict(Evidence({})) == Verdict("not decided", f"there are no runs of {claim.items[0]}")
    elu = BY_NAME["elu"]
    quick = Evidence({"table1": record("table1", table1_results(elu=DIVERGED), scale="quick")})
    assert elu.verdict(quick) == Verdict("not decided", "the scale quick is too small to tell")
    half = record("table1", table1_results(elu=DIVERGED)) | {"complete": False}
    assert elu.verdict(Evidence({"table1": half})).reason == "the runs of table1 are not complete"


def test_a_comparison_needs_a_margin_and_with_seeds_two_standard_errors() -> None:
    margin = Margin(0.02, 0.05, "BPC")
    for a, b, order in (
        ([1.0], [1.1], "below"),
        ([1.1], [1.0], "above"),
        ([1.0], [1.04], "unclear"),  # one seed
        ([1.0], [1.01], "equal"),
        ([1.0, 1.001], [1.03, 1.031], "below"),
        ([1.0, 2.0], [2.0, 3.0], "unclear"),  # 1 apart, by a standard error of 0.7
        ([1.0, 1.001], [1.0, 1.002], "equal"),
        ([1.0, 1.05], [1.0, 1.05], "unclear"),  # too noisy to be called equal
        ([1.0], [DNC], "below"),
        ([DNC], [1.0], "above"),
        ([DNC], [DNC], "unclear"),
        ([1.0, DNC], [2.0, 2.0], "unclear"),
    ):
        assert compare(Cell(a), Cell(b), margin) == order, (a, b)


def test_a_claim_that_lacks_seeds_is_not_decided() -> None:
    half = record("table1", table1_results(elu=DIVERGED), {"36": {}, "4": {}})
    assert BY_NAME["elu"].verdict(Evidence({"table1": half})).reason.endswith("for some seeds")


def test_cells() -> None:
    cell = Cell([1.0, 2.0, DNC], 1.25)
    assert cell.text(2) == "1.50 ± 0.71 (1 of 3 did not converge)"
    assert cell.difference == pytest.approx(0.25)
    assert Cell([-1e-9]).text(3) == "0.000"
    assert Cell(["did not converge"]).text(3) == "did not converge"
    assert Cell((), "did not converge").published_text(3) == "did not converge"
    assert Cell().text(3) == ""
    assert Cell([38085823823872.0]).text(3) == "3.81e+13"


def test_every_claim_belongs_to_items_that_there_are() -> None:
    for claim in CLAIMS:
        assert set(claim.items) <= set(ITEMS)
        assert claim.rule
        assert claim.text.endswith(".")
    assert len(BY_NAME) == len(CLAIMS)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    run = {"config": {"model": {"nonlinearity": EVIL}, "data": "ptb"}, "result": {}}
    records = {
        "figure1": record("figure1", figure1.compute("quick", None), scale="quick"),
        "table1": record(
            "table1", table1_results(elu=DIVERGED), table1_results(elu=1.8), machine=EVIL, runs={EVIL: run}
        ),
        "aliasing": record(
            "aliasing",
            {"elu, right": {"status": EVIL, "train_bpc": [(1, 5.0), (2, 4.0)], "best_valid_bpc": 2.0}},
        ),
    }
    for name, content in records.items():
        (out / f"{name}.json").write_text(json.dumps(content))
    write_report(out)
    return out


def test_what_comes_from_runs_is_escaped(reported: Path) -> None:
    for name in ("report.html", "report.md"):
        text = (reported / name).read_text()
        assert "<script" not in text
        assert "&lt;script&gt;" in text
    assert "\\|&lt;/td&gt;" in (reported / "report.md").read_text()


def test_the_report_says_what_was_found_beside_what_was_published(reported: Path) -> None:
    page = (reported / "report.html").read_text()
    assert "1.800 (1 of 2 did not converge)" in page
    assert "1.353" in page  # published
    assert "bipolar reproduce table1 --scale paper" in page
    data = json.loads((reported / "report.json").read_text())
    assert {claim["name"]: claim["verdict"] for claim in data["claims"]}["mean"] == "reproduced"
    cell = data["items"]["table1"]["tables"][0]["rows"]["36 layers"][2]
    assert cell == {"ours": ["did not converge", 1.8], "published": "did not converge", "difference": None}
    text = (reported / "report.md").read_text()
    assert "| Theorems 1 and 2, Figure 1 | **reproduced** |" in text
    assert "the paper's claims: 1 reproduced" in text
    assert "our own: 0 reproduced" in text


def test_a_section_says_what_its_runs_share_and_in_what_they_differ() -> None:
    def config(**of_model: Any) -> dict[str, Any]:
        return {"data": "ptb", "seed": 1, "max_steps": None, "log_every": 10, "model": of_model}

    runs = {
        "a": {"config": config(num_layers=4, skip_every=None, cell="stack", recompute=False)},
        "b": {"config": config(num_layers=36, skip_every=4, cell="stack", recompute=False)},
    }
    facts = Section(ITEMS["figure5"], record("figure5", {}, runs=runs), ()).facts
    assert facts["configuration"] == "data ptb, cell stack"
    assert facts["by run"] == "num layers 4 / 36, skip every None / 4"
    computed = Section(ITEMS["figure2"], record("figure2", {}, configuration={"units": 8}), ()).facts
    assert computed["configuration"] == "units 8"
    assert "by run" not in computed


def test_the_command_rebuilds_it(reported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (reported / "report.html").read_bytes()
    (reported / "report.html").unlink()
    main(["report", str(reported)])
    assert str(reported / "report.html") in capsys.readouterr().out.splitlines()
    assert (reported / "report.html").read_bytes() == before
    with pytest.raises(UsageError, match="there is no result of bipolar reproduce here"):
        write_report(tmp_path)


def test_it_is_rebuilt_from_metrics_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the records are gone, from the directories of the runs."""
    tiny = TextConfig("python-docs", TextModel(36, 8), max_steps=4, batch_size=8, window=10, max_valid_windows=2)
    item = dataclasses.replace(table2.ITEM, runs=lambda scale: {"belu": tiny if scale == "quick" else TextConfig()})
    monkeypatch.setitem(ITEMS, "table2", item)
    Reproduction([item], "quick", tmp_path).run(one_after_another)
    before = json.loads((tmp_path / "table2.json").read_text())
    (tmp_path / "table2.json").unlink()
    main(["report", str(tmp_path)])
    assert json.loads((tmp_path / "table2.json").read_text())["results"] == before["results"]
    assert (tmp_path / "report.html").exists()


def test_the_documentation_is_what_the_results_say(tmp_path: Path) -> None:
    """``bipolar report results/small --markdown docs/paper.md`` was run after the last change."""
    root = ROOT
    made = write_markdown(root / "results/small", root / "docs/.paper.md")
    try:
        assert made.read_text() == (root / "docs/paper.md").read_text()
    finally:
        made.unlink()


def test_the_example_of_a_table_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs/items.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(text.split("```python\n")[1].split("```")[0], "my_table.py", "exec"), {"__name__": "__main__"})  # noqa: S102
    page = (tmp_path / "runs/patterns/report.html").read_text()
    assert "Which units are flipped" in page
    assert "It does not matter which units are flipped." in page
    assert "bipolar reproduce patterns" not in page  # which the command does not know
    assert "halves" in page


def test_a_network_and_its_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(symmetry.STEPS, "quick", 4)
    results = symmetry.compute("quick", None)
    assert [pair["largest_difference"] == 0 for pair in results.values()] == [True, True, False, False]
    assert all(len(set(pair["plain"])) > 1 for pair in results.values())
    evidence = Evidence({"symmetry": record("symmetry", results, scale="quick")})
    assert BY_NAME["symmetry"].verdict(evidence).status == "reproduced"
    titles = [axes.get_title() for axes in symmetry.draw([results]).axes]
    assert sum("equal to the last bit" in title for title in titles) == 2


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
