"""The report as a page."""

import base64

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from bipolar.lab.report import effects
from bipolar.lab.report.content import ADDRESS, INTRODUCTION, PAPER, RECORDED, STATUSES, Report, Section
from bipolar.lab.reproduce.pictures import current_picture
from bipolar.lab.reproduce.records import results_of

#: Comparisons of a claim in the summary; its section has all.
SHOWN = 2
#: The length of a reason that stands in the summary as it is; a longer one unfolds.
SHORT = 45


def page(report: Report) -> str:
    """The report as HTML that needs no other file. Everything that comes from runs is escaped."""
    environment = Environment(
        loader=PackageLoader("bipolar.lab.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    link = Markup('<a href="{}">{}</a>').format(ADDRESS, PAPER)
    return environment.get_template("page.html.jinja").render(
        report=report,
        sections={section.item.name for section in report.sections},
        statuses=STATUSES,
        shown=SHOWN,
        short=SHORT,
        effects=effects,
        recorded=RECORDED,
        introduction=[escape(paragraph).format(paper=link) for paragraph in INTRODUCTION],
        pictures={section.item.name: _embedded(section, report) for section in report.sections},
    )


def _embedded(section: Section, report: Report) -> str | None:
    """The picture as a data URL for an ``img``, in which no script of an SVG can run."""
    path = current_picture(section.item, results_of(section.record), report.directory)
    return None if path is None else "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()
