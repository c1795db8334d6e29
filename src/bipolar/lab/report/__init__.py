"""The report on a reproduction: verdicts, tables, figures; as a page, as Markdown and as JSON."""

from collections.abc import Sequence
from pathlib import Path

from bipolar.lab.report.write import write_markdown, write_report
from bipolar.lab.reproduce.executors import one_after_another
from bipolar.lab.reproduce.item import Item, Scale
from bipolar.lab.reproduce.reproduction import Reproduction

__all__ = ["reproduce", "write_markdown", "write_report"]


def reproduce(items: Sequence[Item], scale: Scale, out: Path, data_dir: Path | None = None) -> Path:
    """Reproduces items, one's own too, and reports on them; returns the path of the page."""
    Reproduction(items, scale, out, data_dir).run(one_after_another)
    return write_report(out, {item.name: item for item in items})[0]
