"""The report as files: a page, Markdown and JSON."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bipolar._tools.files import replacing, write_json
from bipolar.lab.errors import UsageError
from bipolar.lab.paper import ITEMS
from bipolar.lab.report.content import Decided, Report, read
from bipolar.lab.report.markdown import markdown
from bipolar.lab.report.page import page
from bipolar.lab.report.recorded import Recorded
from bipolar.lab.reproduce.item import Item
from bipolar.lab.reproduce.records import as_recorded, finite, record_path, results_of


def write_report(directory: Path, items: Iterable[Item] | None = None) -> list[Path]:
    """Writes ``report.html``, ``report.md`` and ``report.json`` from the records in a directory.

    Args:
        directory: the directory of the records
        items: the items to report on. Default: those of ``bipolar.lab.paper``
    """
    report = read(directory, ITEMS.values() if items is None else items, beside_recorded=True)
    html, text, data = (directory / f"report.{suffix}" for suffix in ("html", "md", "json"))
    with as_recorded(*(record_path(directory, section.item.name) for section in report.sections)):
        made = page(report), markdown(report), finite(as_json(report))
    _write(html, made[0])
    _write(text, made[1])
    write_json(data, made[2])
    return [html, text, data]


def write_markdown(directory: Path, path: Path) -> Path:
    """Writes the report as Markdown to any path, with links to the pictures in the directory."""
    report = read(directory, ITEMS.values())
    figures = os.path.relpath(directory, path.parent)
    try:
        _write(path, markdown(report, Path(figures).as_posix()))
    except OSError as error:
        raise UsageError(f"--markdown {path}: {error.strerror or error}") from None
    return path


def write_verdicts(directory: Path, path: Path) -> Path:
    """Writes the verdicts alone as JSON to any path, by the name of the claim."""
    report = read(directory, ITEMS.values())
    records = {section.item.name: section.record for section in report.sections}

    def verdict(decided: Decided) -> Recorded:
        of_claim = [records[name] for name in decided.claim.items if name in records]
        return Recorded(
            verdict=decided.verdict.status,
            reason=decided.verdict.reason,
            scale=of_claim[0]["scale"] if of_claim else None,
            seeds=min((len(results_of(record)) for record in of_claim), default=0),
            comparisons=decided.verdict.comparisons,
        )

    try:
        write_json(path, {decided.claim.name: verdict(decided).to_json() for decided in report.decided})
    except OSError as error:
        raise UsageError(f"--verdicts {path}: {error.strerror or error}") from None
    return path


def _write(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def as_json(report: Report) -> dict[str, Any]:
    """The report as data, with the values of the tables unrounded."""
    return {
        "scale": ", ".join(report.scales),
        "claims": [
            {
                "name": d.claim.name,
                "claim": d.claim.text,
                "where": d.claim.where,
                "rule": d.claim.rule,
                "verdict": d.verdict.status,
                "reason": d.verdict.reason,
                "comparisons": [comparison.to_json() for comparison in d.verdict.comparisons],
                **({"recorded": d.recorded.to_json()} if d.recorded else {}),
            }
            for d in report.decided
        ],
        "items": {
            section.item.name: {
                "title": section.title,
                **section.facts,
                "tables": [
                    {
                        "title": table.title,
                        "columns": list(table.columns),
                        "rows": {
                            name: [
                                {
                                    "ours": list(e.ours),
                                    "published": e.published,
                                    "difference": e.difference if table.compared else None,
                                }
                                for e in row
                            ]
                            for name, row in table.rows.items()
                        },
                    }
                    for table in section.tables
                ],
            }
            for section in report.sections
        },
    }
