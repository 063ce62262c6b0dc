"""The docs as a site: `make docs` has Sphinx build it into site/, where a warning is an error.

The pages are the Markdown of the whole tree, where they stand, so that a link works here and there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx

import harness
from tools import manual, schemas

project = "harness"
version = release = harness.__version__
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**", "profiles/**"]
exclude_patterns = ["docs/index.rst"]
READMES = ("harness/*", "harness/questions/*", "ipsec", "releases")
include_patterns += [f"{folder}/README.md" for folder in READMES]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"harness {version}"
html_copy_source = False
html_static_path = html_css_files = ["site.css"]
html_show_copyright = False

# Pages of parts (harness/*, profiles) are reached by links, from pages that the sidebar has.
suppress_warnings = ["toc.not_included"]


class Help(Directive):
    """What `--help` prints, of each command a section."""

    def run(self) -> Sequence[nodes.Node]:
        return [_section(path, text) for path, text in manual.helps()]


def _section(path: str, text: str) -> nodes.section:
    section = nodes.section(ids=[path.replace(" ", "-")])
    section += nodes.title(text=path)
    section += nodes.literal_block(text, text, language="text")
    return section


class Notebook(MystParser):
    """A notebook as a page: its cells in Markdown, with what is stored below them."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        cells = json.loads(inputstring)["cells"]
        super().parse("\n\n".join(part for cell in cells for part in _markdown(cell)), document)


def _markdown(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
    for output in cell.get("outputs", ()):
        if output["output_type"] == "stream":
            yield f"```text\n{''.join(output['text'])}```"
        else:
            drawn = output["data"]["image/png"]
            yield f'<img alt="what the cell draws" src="data:image/png;base64,{drawn}">'


def _with_fields(_app: Sphinx, page: str, source: list[str]) -> None:
    """The tables of fields where a page has their place; the sidebar's entries end the first page."""
    source[0] = source[0].replace("<!-- fields -->", schemas.tables())
    if page == root_doc:
        entries = (Path(__file__).parent / "index.rst").read_text(encoding="utf-8")
        source[0] += f"\n```{{eval-rst}}\n{entries}```\n"


def _with_index(app: Sphinx, error: Exception | None) -> None:
    """The first page, by the name that servers look for."""
    if error is None:
        shutil.copy(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    app.connect("source-read", _with_fields)
    app.connect("build-finished", _with_index)
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(Notebook)
    app.add_directive("harness-help", Help)
