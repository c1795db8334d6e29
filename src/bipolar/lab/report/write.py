"""The report as files: a page, Markdown, JSON."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bipolar._tools.files import replacing, write_json
from bipolar.lab.errors import UsageError
from bipolar.lab.paper import ITEMS
from bipolar.lab.report.content import Decided, Section, read
from bipolar.lab.reproduce.comparison import Table
from bipolar.lab.reproduce.item import ABOUT_SCALES, SCALES, Item, Scale
from bipolar.lab.reproduce.verdicts import OURS

#: For whoever has not read the paper.
INTRODUCTION = (
    "Eidnes & Nøkland, [Shifting Mean Activation Towards Zero with Bipolar Activation "
    "Functions](https://arxiv.org/abs/1709.04054), 2018, flip an activation function on every second unit of a "
    "layer: f(x) on one, -f(-x) on the next. The mean of the layer's output then moves to zero by itself. With "
    "it they train recurrent networks of up to 144 layers without gates, and residual networks without batch "
    "norm, where, they report, the plain activations diverge or need far lower learning rates.",
    "",
    "Three things to know when reading on. As long as everything between its activations commutes with signs, a "
    "bipolar network is a plain one with some weights' signs flipped, and trains as that does; what bipolarity then "
    "changes is what the initialisation (LSUV) measures, not what the network can learn. In the code released with the "
    "paper a skip connection is added in place, which changes the gradient of ELU and not that of BELU; that is a "
    "reading of public code and a simulation, not a proof of what happened. And a verdict below the paper's scale is "
    "one about smaller networks and shorter runs.",
)
STATUSES = ("reproduced", "not reproduced", "not decided")


def write_report(directory: Path, items: Mapping[str, Item] = ITEMS) -> list[Path]:
    """Writes ``report.html``, ``report.md`` and ``report.json`` from the records in a directory."""
    sections, decided = read(directory, items)
    if not sections:
        raise UsageError(f"{directory}: there is no result of bipolar reproduce here")
    page, text, data = (directory / f"report.{suffix}" for suffix in ("html", "md", "json"))
    _write(page, html(sections, decided))
    _write(text, markdown(sections, decided))
    write_json(data, as_json(sections, decided))
    return [page, text, data]


def write_markdown(directory: Path, path: Path) -> Path:
    """Writes the report as Markdown elsewhere, with links to the pictures in the directory."""
    sections, decided = read(directory, ITEMS)
    if not sections:
        raise UsageError(f"{directory}: there is no result of bipolar reproduce here")
    figures = os.path.relpath(directory, path.parent)
    try:
        _write(path, markdown(sections, decided, Path(figures).as_posix()))
    except OSError as error:
        raise UsageError(f"--markdown {path}: {error.strerror or error}") from None
    return path


def _write(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def html(sections: list[Section], decided: list[Decided]) -> str:
    """One page that needs nothing else: styles and pictures are in it. All that comes from runs is escaped."""
    environment = Environment(
        loader=PackageLoader("bipolar.lab.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    template = environment.get_template("page.html.jinja")
    return template.render(
        sections=sections,
        decided=decided,
        counts=_counts(decided),
        scale=_scale(sections),
        about_scales=_about_scales(sections),
    )


def _counts(decided: list[Decided]) -> dict[str, dict[str, int]]:
    """How many claims of the paper, and of ours, have which verdict."""
    groups = {
        "the paper's claims": [d for d in decided if d.claim.where != OURS],
        "our own": [d for d in decided if d.claim.where == OURS],
    }
    return {
        name: {status: sum(d.verdict.status == status for d in group) for status in STATUSES}
        for name, group in groups.items()
        if group
    }


def _scale(sections: list[Section]) -> str:
    return ", ".join(_scales(sections))


def _scales(sections: list[Section]) -> list[Scale]:
    found = {section.record["scale"] for section in sections}
    return [scale for scale in SCALES if scale in found]


def _about_scales(sections: list[Section]) -> list[str]:
    return [f"The scale {scale}: {ABOUT_SCALES[scale]}." for scale in _scales(sections)]


def markdown(sections: list[Section], decided: list[Decided], figures: str | None = None) -> str:
    """The same as text. With ``figures``, where the pictures are, they are shown."""
    lines = ["# The paper, reproduced", "", *INTRODUCTION, ""]
    lines += [line for about in _about_scales(sections) for line in (about, "")]
    for group, counts in _counts(decided).items():
        lines += [f"At the scale {_scale(sections)}, {group}: {', '.join(f'{n} {s}' for s, n in counts.items())}.", ""]
    lines += ["| claim | where | verdict | why |", "| --- | --- | --- | --- |"]
    for d in decided:
        text, where, why = (_escaped(part) for part in (d.claim.text, d.claim.where, d.verdict.reason))
        lines.append(f"| {text} | {where} | **{d.verdict.status}** | {why} |")
    for section in sections:
        lines += ["", f"## {_escaped(section.item.title)}", ""]
        if section.item.about:
            lines += [_escaped(section.item.about), ""]
        for d in section.claims:
            lines += [
                f"- {_escaped(d.claim.text)} **{d.verdict.status}**: {_escaped(d.verdict.reason)}. "
                f"Criterion: {_escaped(d.claim.rule)}."
            ]
        if figures is not None and section.item.draw is not None:
            lines += ["", f"![{_escaped(section.item.title)}]({figures}/{section.item.name}.svg)"]
        if section.published:
            lines += ["", f"As published: {_escaped(section.published)}."]
        for table in section.tables:
            lines += ["", _escaped(table.title), "", *_table(table)]
        lines += ["", *(f"- {name}: {_escaped(value)}" for name, value in section.facts.items())]
        if section.next_scale:
            lines += ["", f"At the next scale: `{section.next_scale}`."]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Without what Markdown or HTML would take for its own."""
    for character in "\\`*_[]|":
        text = text.replace(character, f"\\{character}")
    for character, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\n", " ")):
        text = text.replace(character, instead)
    return text


def _table(table: Table) -> list[str]:
    lines = [
        "| | " + " | ".join(_escaped(column) for column in table.columns) + " |",
        "| --- " * (len(table.columns) + 1) + "|",
    ]
    for name, cells in table.rows.items():
        shown = []
        for cell in cells:
            ours, published = cell.text(table.digits), cell.published_text(table.digits)
            apart = "" if cell.difference is None else f", {cell.difference:+.{table.digits}f}"
            shown.append(
                f"{ours} (published {published}{apart})"
                if ours and published
                else ours or (f"published {published}" if published else "")
            )
        lines.append(f"| {_escaped(name)} | " + " | ".join(_escaped(cell) for cell in shown) + " |")
    return lines


def as_json(sections: list[Section], decided: list[Decided]) -> dict[str, Any]:
    """The same as data."""
    return {
        "scale": _scale(sections),
        "claims": [
            {
                "name": d.claim.name,
                "claim": d.claim.text,
                "where": d.claim.where,
                "rule": d.claim.rule,
                "verdict": d.verdict.status,
                "reason": d.verdict.reason,
            }
            for d in decided
        ],
        "items": {
            section.item.name: {
                "title": section.item.title,
                **section.facts,
                "tables": [
                    {
                        "title": table.title,
                        "columns": list(table.columns),
                        "rows": {
                            name: [
                                {"ours": list(cell.ours), "published": cell.published, "difference": cell.difference}
                                for cell in cells
                            ]
                            for name, cells in table.rows.items()
                        },
                    }
                    for table in section.tables
                ],
            }
            for section in sections
        },
    }
