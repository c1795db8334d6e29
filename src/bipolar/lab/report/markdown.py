"""The report as Markdown."""

from bipolar.lab.report.content import ADDRESS, INTRODUCTION, PAPER, RECORDED, Report, Section
from bipolar.lab.reproduce.tables import RenderedEntry, Table


def markdown(report: Report, figures: str | None = None) -> str:
    """The report as Markdown, with the pictures if ``figures`` says where they are."""
    lines = ["# The paper, reproduced", ""]
    for paragraph in (*INTRODUCTION, *report.about_scales):
        lines += [paragraph.replace("{paper}", f"[{PAPER}]({ADDRESS})"), ""]
    for group, counts in report.counts.items():
        lines += [f"{group}: {', '.join(f'{count} {status}' for status, count in counts.items())}.", ""]
    columns = ["claim", "where", "verdict", "why", *([RECORDED] if report.has_recorded else [])]
    lines += [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for d in report.decided:
        text, where, why = (_escaped(part) for part in (d.claim.text, d.claim.where, d.verdict.reason))
        lines.append(f"| {text} | {where} | **{d.verdict.status}** | {why} |")
        if report.has_recorded:
            lines[-1] += f" **{d.recorded.verdict}**: {_escaped(d.recorded.reason)} |" if d.recorded else " |"
    for section in report.sections:
        lines += _section(section, figures)
    return "\n".join(lines) + "\n"


def _section(section: Section, figures: str | None) -> list[str]:
    lines = ["", f"## {_escaped(section.title)}", ""]
    if section.item.about:
        lines += [_escaped(section.item.about), ""]
    if section.shows:
        lines += [_escaped(section.shows), ""]
    for d in section.claims:
        lines += [
            f"- {_escaped(d.claim.text)} **{d.verdict.status}**: {_escaped(d.verdict.reason)}. "
            f"Criterion: {_escaped(d.claim.rule)}."
        ]
    if figures is not None and section.item.draw is not None:
        lines += ["", f"![{_escaped(section.title)}]({figures}/{section.item.name}.svg)"]
        lines += ["", f"*{_escaped(section.item.caption)}*"] if section.item.caption else []
    if section.published:
        lines += ["", f"As published: {_escaped(section.published)}."]
    for table in section.tables:
        lines += ["", _escaped(table.title), "", *_table(table)]
    lines += ["", *(f"- {name}: {_escaped(value)}" for name, value in section.facts.items())]
    if section.next_scale:
        lines += ["", f"At the next scale: `{section.next_scale}`."]
    return lines


def _table(table: Table) -> list[str]:
    lines = [
        "| | " + " | ".join(_escaped(column) for column in table.columns) + " |",
        "| --- " * (len(table.columns) + 1) + "|",
    ]
    for name, row in table.rendered.items():
        lines.append(f"| {_escaped(name)} | " + " | ".join(_escaped(_in_one_line(entry)) for entry in row) + " |")
    return lines


def _in_one_line(entry: RenderedEntry) -> str:
    published = f"published {entry.published}" if entry.published else ""
    if not entry.ours or not published:
        return entry.ours or published
    return f"{entry.ours} ({published}{', ' if entry.difference else ''}{entry.difference})"


def _escaped(text: str) -> str:
    """Text in which Markdown and HTML find nothing of their own."""
    for character in "\\`*_[]|":
        text = text.replace(character, f"\\{character}")
    for character, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\n", " ")):
        text = text.replace(character, instead)
    return text
