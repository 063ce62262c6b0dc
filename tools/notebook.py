"""The notebook of the docs: its cells run as Jupyter runs them, and what they print stands below them.

``tools/figures.py`` compares and writes it with all other pages; Jupyter itself is not needed.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

FILE = Path(__file__).parents[1] / "docs" / "notebook.ipynb"

Notebook = dict[str, Any]
"""As nbformat 4 describes it: https://nbformat.readthedocs.io/en/latest/format_description.html"""


def load() -> Notebook:
    found: Notebook = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def save(notebook: Notebook) -> None:
    FILE.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def executed(notebook: Notebook) -> Notebook:
    """The same with the outputs that its cells have now: text, and the pictures that Matplotlib drew.

    Cells run in one namespace, in the notebook's folder. What a cell raises is raised.
    """
    names: dict[str, Any] = {}
    with (
        contextlib.chdir(FILE.parent),
        # Matplotlib would make a folder in the user's ~/.config.
        tempfile.TemporaryDirectory() as settings,
        # Without a screen, pictures are drawn by Agg.
        mock.patch.dict(os.environ, MPLBACKEND="agg", MPLCONFIGDIR=settings),
    ):
        cells = [_executed(cell, names) for cell in notebook["cells"]]
    return {**notebook, "cells": cells}


def printed(notebook: Notebook) -> list[Any]:
    """What it says, without its pictures: these differ from one version of Matplotlib to the next."""
    return [
        (cell["source"], [output for output in cell.get("outputs", ()) if output["output_type"] == "stream"])
        for cell in notebook["cells"]
    ]


def _executed(cell: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    if cell["cell_type"] != "code":
        return cell
    reported = io.StringIO()
    with contextlib.redirect_stdout(reported):
        exec(compile("".join(cell["source"]), f"cell {cell['id']}", "exec"), names)  # noqa: S102 -- our own
    outputs = [*_text(reported.getvalue()), *_pictures()]
    return {**cell, "outputs": outputs}


def _text(reported: str) -> list[dict[str, Any]]:
    lines = reported.splitlines(keepends=True)
    return [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []


def _pictures() -> list[dict[str, Any]]:
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    found = []
    for number in pyplot.get_fignums():
        png = io.BytesIO()
        pyplot.figure(number).savefig(png, format="png", dpi=72, metadata={"Software": None})
        data = {"image/png": base64.b64encode(png.getvalue()).decode()}
        found.append({"data": data, "metadata": {}, "output_type": "display_data"})
        pyplot.close(number)
    return found
