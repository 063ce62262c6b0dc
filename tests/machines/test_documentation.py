"""docs/machines.md, walked: what its reader types is typed here, in the page's order, on stock machines."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.machines.images import ROOT
from tests.machines.runs import SHORT, as_before, cells, proved
from tests.machines.site import Site, said

PAGE = ROOT / "docs" / "machines.md"
COMMAND = re.compile(r"^ {4,}((?:ssh|harness) .*)$", re.MULTILINE)
OPTIONS = re.compile(r"`(--[a-z][^`]*)`")


def typed(site: Site, line: str) -> list[str]:
    """A line of the page as a reader types it here; a run is cut short by three options more."""
    words = shlex.split(line.replace("IFACE", site.wire))
    if words[0] == "harness":
        words = site.command(*words[1:])
        words += SHORT if line.startswith("harness run ") else ()
    return words


@pytest.mark.on_ci("trixie")
def test_every_command(installed: Site) -> None:
    lines = COMMAND.findall(PAGE.read_text(encoding="utf-8"))
    assert len(lines) >= 8, lines
    with as_before(installed):
        for line in lines:
            done = said(typed(installed, line), cwd=installed.folder)
            assert done.status == 0, f"{line}: {done.text}"
    found = cells(installed)
    assert len(found) == 24
    for name, cell in found.items():
        assert cell["status"] == "ok", f"{name}: {cell['reason']}"
        assert not cell["column"]["protection"] or proved(cell), cell["proof"]
    assert (installed.folder / "report.html").stat().st_size > 0


def test_every_option(installed: Site) -> None:
    """The options that stand in the page's text are ones that there are."""
    commands = ("run", "doctor", "clean", "report")
    reported = " ".join(installed.harness(command, "--help").out for command in commands)
    for option in OPTIONS.findall(PAGE.read_text(encoding="utf-8")):
        assert option.split()[0].partition("=")[0] in reported, option
