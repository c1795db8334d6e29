"""The report on a reproduction: verdicts, tables and pictures, as a page, as Markdown and as JSON."""

from bipolar.lab.report.write import write_markdown, write_report, write_verdicts

__all__ = ["write_markdown", "write_report", "write_verdicts"]
