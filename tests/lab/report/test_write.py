"""The files of a report: their content, and what may not be in them."""

import dataclasses
import html
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from bipolar.lab.cli import main
from bipolar.lab.errors import UsageError
from bipolar.lab.paper import ITEMS, table2
from bipolar.lab.report import write_markdown, write_report, write_verdicts
from bipolar.lab.report.content import ADDRESS, INTRODUCTION, PAPER, RECORDED, read
from bipolar.lab.report.recorded import recorded
from bipolar.lab.reproduce.item import Computation
from bipolar.lab.reproduce.outcomes import Results
from bipolar.lab.reproduce.reproduction import Reproduction
from bipolar.lab.reproduce.tables import Entry, Table
from bipolar.lab.training.text import TextConfig, TextModel
from tests.helpers.paths import ROOT


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
    assert page.index('<a href="#table1">Table 1: ') < page.index('<h2 id="figure1">')  # the list of contents
    assert "bipolar reproduce table1 --scale paper" in page
    data = json.loads((reported / "report.json").read_text())
    assert {claim["name"]: claim["verdict"] for claim in data["claims"]}["mean"] == "reproduced"
    cell = data["items"]["table1"]["tables"][0]["rows"]["36 layers"][2]
    assert cell == {"ours": ["did not converge", 1.8], "published": "did not converge", "difference": None}
    text = (reported / "report.md").read_text()
    assert "| Theorems 1 and 2, Figure 1 | **reproduced** |" in text
    assert "the paper's claims: 2 reproduced" in text
    assert "our own: 0 reproduced" in text


def test_the_command_rebuilds_it(reported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (reported / "report.html").read_bytes()
    (reported / "report.html").unlink()
    main(["report", str(reported)])
    assert str(reported / "report.html") in capsys.readouterr().out.splitlines()
    assert (reported / "report.html").read_bytes() == before
    with pytest.raises(UsageError, match="there is no result of bipolar reproduce here"):
        write_report(tmp_path)


@pytest.mark.parametrize("value", ["<script>", [], 3, {"1": 2}])
def test_a_record_of_another_is_named(tmp_path: Path, value: object) -> None:
    record = json.loads((ROOT / "results" / "small" / "divergence.json").read_text())
    record["results"] = dict.fromkeys(record["results"], value)
    (tmp_path / "divergence.json").write_text(json.dumps(record))
    with pytest.raises(SystemExit, match=r"divergence.json: not as bipolar reproduce writes it"):
        main(["report", str(tmp_path)])
    with pytest.raises(UsageError, match=r"divergence.json: not as bipolar reproduce writes it"):
        write_report(tmp_path)  # which judges claims, and draws nothing before


def test_it_is_rebuilt_from_metrics_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the records are gone, from the directories of the runs."""
    tiny = TextConfig("python-docs", TextModel(36, 8), max_steps=4, batch_size=8, window=10, max_valid_windows=2)
    item = dataclasses.replace(table2.ITEM, runs=lambda scale: {"belu": tiny if scale == "quick" else TextConfig()})
    monkeypatch.setitem(ITEMS, "table2", item)
    Reproduction([item], "quick", tmp_path).run()
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


def test_the_recorded_verdicts_are_what_the_results_say(tmp_path: Path) -> None:
    """The command in results/README.md was run after the last change."""
    made = write_verdicts(ROOT / "results/small", tmp_path / "recorded.json")
    assert json.loads(made.read_text()) == {
        name: json.loads(json.dumps(verdict.to_json())) for name, verdict in recorded().items()
    }
    assert {verdict.scale for verdict in recorded().values()} <= {"small", None}


def test_a_report_on_a_quick_run_shows_them(tmp_path: Path, reported: Path) -> None:
    known = recorded()["rates"]
    shutil.copy(reported / "figure1.json", tmp_path)
    write_report(tmp_path)
    assert f"**{known.verdict}**" in (tmp_path / "report.md").read_text()
    for suffix in ("html", "md"):
        assert RECORDED in (tmp_path / f"report.{suffix}").read_text()
    claims = {claim["name"]: claim for claim in json.loads((tmp_path / "report.json").read_text())["claims"]}
    assert claims["rates"]["recorded"] == json.loads(json.dumps(known.to_json()))


def test_a_report_on_other_runs_shows_them_unless_they_are_the_same(tmp_path: Path, reported: Path) -> None:
    for suffix in ("html", "md"):
        assert RECORDED in (reported / f"report.{suffix}").read_text()
    assert RECORDED not in write_markdown(reported, tmp_path / "alone.md").read_text()
    assert read(reported, ITEMS.values(), beside_recorded=True).has_recorded
    assert not read(ROOT / "results/small", ITEMS.values(), beside_recorded=True).has_recorded


def test_the_report_keeps_the_comparisons_as_data(reported: Path) -> None:
    claims = {claim["name"]: claim for claim in json.loads((reported / "report.json").read_text())["claims"]}
    (compared,) = claims["bselu"]["comparisons"]
    assert [side["name"] for side in compared["sides"]] == ["bselu, 36 layers", "belu, 36 layers"]
    assert compared["sides"][0]["ours"] == [1.9, 1.9]
    assert compared["order"] == "equal"


@pytest.mark.parametrize("name", [name for name, verdict in recorded().items() if verdict.verdict != "not decided"])
def test_every_recorded_verdict_that_is_decided_has_an_effect_to_show(name: str) -> None:
    assert recorded()[name].comparisons
    for comparison in recorded()[name].comparisons:
        assert all(side.name and side.ours for side in comparison.sides)
        assert comparison.side.quantity


def test_the_command_writes_the_verdicts(reported: Path, tmp_path: Path) -> None:
    main(["report", str(reported), "--verdicts", str(tmp_path / "verdicts.json")])
    verdicts = json.loads((tmp_path / "verdicts.json").read_text())
    assert verdicts["mean"]["verdict"] == "reproduced"
    assert (verdicts["elu"]["scale"], verdicts["elu"]["seeds"]) == ("small", 2)
    nothing: dict[str, object] = {"verdict": "not decided", "reason": "", "scale": None, "seeds": 0, "comparisons": []}
    assert verdicts["rates"] | {"reason": ""} == nothing
    with pytest.raises(SystemExit, match="--verdicts"):
        main(["report", str(reported), "--verdicts", str(tmp_path)])


def test_tables_are_made_once_for_all_formats(tmp_path: Path) -> None:
    made = []

    def tables(seeds: Sequence[Results]) -> list[Table]:
        made.append(seeds)
        return [Table("A table", ["a"], {"row": [Entry([1.0], 2.0)]})]

    item = Computation(name="one", title="One", compute=lambda scale, data_dir: {"a": 1.0}, tables=tables)
    Reproduction([item], "quick", tmp_path).run()
    write_report(tmp_path, [item])
    assert len(made) == 1
    assert "1.000 (published 2.000, -1.000)" in (tmp_path / "report.md").read_text()


def test_page_and_markdown_have_one_introduction(reported: Path) -> None:
    for name, link in (("html", f'<a href="{ADDRESS}">{PAPER}</a>'), ("md", f"[{PAPER}]({ADDRESS})")):
        text = html.unescape((reported / f"report.{name}").read_text())
        for paragraph in INTRODUCTION:
            assert paragraph.replace("{paper}", link) in text
