"""The site: how Sphinx builds it from the Markdown of the project and the docstrings of the package.

The root of the project is Sphinx's source, so that a link between two files is the same in the repository and on the
site. A table of contents would be noise in a Markdown file that somebody reads in the repository: the chapters stand
below, and are put into the front page as it is read.
"""

import inspect
from collections.abc import Collection, Iterator
from importlib import import_module
from importlib.metadata import files
from pathlib import Path
from types import FunctionType
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ConfigError
from sphinx.util import logging

import bipolar

project = "bipolar"
version = release = bipolar.__version__
root_doc = "docs/index"

#: The pages, in the order of the menu.
CHAPTERS = {
    "": [root_doc, "docs/methods", "docs/limits"],
    "Guides": [
        "docs/guides/norms",
        "docs/guides/start",
        "docs/guides/diagnosis",
        "docs/guides/text",
        "docs/guides/deploy",
        "docs/guides/reproduce",
        "docs/guides/items",
    ],
    "Reference": [
        "docs/reference/index",
        "docs/reference/activations",
        "docs/reference/functional",
        "docs/reference/initialisation",
        "docs/reference/probe",
        "docs/reference/conversion",
        "docs/reference/recurrent",
        "docs/reference/optim",
        "docs/reference/models",
        "docs/laboratory",
        "docs/reference/lab",
    ],
    "The paper": ["docs/paper", "docs/mismatches", "docs/rivals"],
    "Records": [
        "results/README",
        "results/cifar10-conv/README",
        "results/hour/README",
        "results/ptb-36x256/README",
        "results/torture",
        "benchmarks/README",
    ],
    "Project": ["CONTRIBUTING", "CHANGELOG"],
}
include_patterns = [f"{page}.md" for pages in CHAPTERS.values() for page in pages]
exclude_patterns = [".*", "build", "dist", "examples", "runs", "site", "src", "tests"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon", "sphinx_copybutton"]
nitpicky = True
# Objects of others: their documentation is on the network.
_OTHERS = r"(torch|numpy|matplotlib|collections|os|pathlib|typing)\..*|Figure"
_VARIABLES = r"bipolar\..*\._?Model"  # of types
_SETTINGS = r"bipolar\.lab\.training\..*"
nitpick_ignore_regex = [("py:.*", _OTHERS), ("py:class", _VARIABLES), ("py:class", _SETTINGS)]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
add_module_names = False
python_maximum_signature_line_length = 90
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shape"]

html_theme = "furo"
html_title = "bipolar"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path: list[str] = []
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True


def _mathjax() -> Path:
    """MathJax as one file, with its fonts in it."""
    for file in files("sphinx-mathjax-offline") or ():
        if file.name == "tex-svg.js":
            return Path(str(file.locate()))
    raise ConfigError("sphinx-mathjax-offline has no tex-svg.js; formulas need it: make setup")


mathjax_path = "tex-svg.js"
mathjax3_config = {"options": {"enableMenu": False}}  # its menu loads files that are not here
html_static_path.append(str(_mathjax()))

#: Modules whose public names are all to be in the reference; those of the laboratory that a table of one's own takes.
PUBLIC = ["bipolar", "bipolar.functional", "bipolar.optim", "bipolar.models", "bipolar.lab.report"]

#: Members of classes that are public.
MEMBERS = (property, classmethod, staticmethod, FunctionType)
#: A function that torch's own modules have, and do not share with a base.
OF_LAYERS = "reset_parameters"


def with_chapters(app: Sphinx, page: str, source: list[str]) -> None:
    """Puts the chapters into the front page."""
    if page == root_doc:
        for caption, pages in CHAPTERS.items():
            title = f":caption: {caption}\n" if caption else ""
            names = ["self" if name == root_doc else f"/{name}" for name in pages]
            source[0] += "\n".join(["", "```{toctree}", ":hidden:", title, *names, "```", ""])


def public() -> Iterator[tuple[str, Any]]:
    """The public names and their values, with the functions and properties of classes."""
    for module in map(import_module, PUBLIC):
        for name in module.__all__:
            value, full = getattr(module, name), f"{module.__name__}.{name}"
            yield full, value
            if not inspect.isclass(value):
                continue
            of_torch = {name for base in value.__mro__ if base.__module__.startswith("torch.") for name in vars(base)}
            for member, defined in vars(value).items():
                known = member.startswith("_") or member == OF_LAYERS or member in of_torch
                if isinstance(defined, MEMBERS) and not known:
                    yield f"{full}.{member}", defined


def undocumented(shown: Collection[str]) -> list[str]:
    """A sentence on every public name that has no docstring, or is not among those that are shown."""
    found = []
    for full, value in public():
        if not inspect.getdoc(value):
            found.append(f"{full} has no docstring")
        if not inspect.ismodule(value) and full not in shown:
            found.append(f"{full} is not in docs/reference")
    return found


def warn_of_undocumented(app: Sphinx, env: BuildEnvironment) -> None:
    for sentence in undocumented(env.domains["py"].data["objects"]):
        logging.getLogger(__name__).warning(sentence)


def front_door(app: Sphinx, error: Exception | None) -> None:
    """Leads from the root of the site to its front page."""
    if error is None:
        text = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={root_doc}.html">'
        Path(app.outdir, "index.html").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", with_chapters)
    app.connect("env-updated", warn_of_undocumented)
    app.connect("build-finished", front_door)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
