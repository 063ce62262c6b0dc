"""How a run looks: names and reasons of others' choosing are shown as they are, and clocks may be set."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from harness.analysis.disturbance import Disturbed
from harness.cli.progress import bar, follow
from harness.model import Status
from harness.results.events import CellEnded, CellStarted, CellWithdrawn, Ended, Event, Phase, ago_s

NAMES = ("[/b]", "[red]x[/red]", "[link=file:///x]", ":x:", "[@click=x]", "\\[/]", "\x1b[2J\x07", "\udcff")


def events(name: str) -> Iterator[Event]:
    yield Phase(f"bringing up {name}")
    yield CellStarted(name, 1, 1)
    yield CellEnded(name, Status.INVALID, f"because of {name}", 10**9, 2.0, Disturbed(0.5, f"by {name}"))
    yield CellWithdrawn(name, f"withdrawn for {name}")
    yield Ended(())


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_as_they_are_and_drive_nothing(name: str, is_terminal: bool) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=is_terminal, color_system=None, width=200, emoji=False)
    started_s = time.monotonic() - 4
    outcome = follow(events(name), cells=1, cell_estimate_s=1.0, console=console, started_s=started_s)
    assert outcome.summary()[0].startswith("1 cells (1 invalid)")
    with bar(f"making {name}", console) as report:
        report(f"building {name}", 0.5)
    shown = name.encode("unicode_escape").decode() if not name.isprintable() else name
    for words in ("because of", "withdrawn for", "disturbed: by"):
        assert f"{words} {shown}" in file.getvalue()
    assert "\x07" not in file.getvalue() and "\x1b[2J\x07" not in file.getvalue()


def test_a_clock_that_is_set_back_during_a_run_changes_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    now = iter(range(10**6, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))

    def cells() -> Iterator[Event]:
        yield CellStarted("a.r1", 1, 1)
        yield CellEnded("a.r1", Status.OK, None, 5 * 10**8, ago_s(float(10**6)))
        yield Ended(())

    console = Console(file=io.StringIO())
    outcome = follow(cells(), cells=1, cell_estimate_s=1.0, console=console, started_s=began - 9.5)
    lines = outcome.summary()
    assert lines[0] == "1 cells (1 ok) in 9.5 s"
    assert lines[1].startswith("fio began 9.5 s after the start and measured for 5%")


def test_a_clock_that_is_set_forward_lets_nothing_begin_before_the_start() -> None:
    def cells() -> Iterator[Event]:
        yield CellEnded("a.r1", Status.OK, None, 10**9, 3600.0)
        yield Ended(())

    console = Console(file=io.StringIO())
    began = time.monotonic() - 2
    outcome = follow(cells(), cells=1, cell_estimate_s=1.0, console=console, started_s=began)
    assert "fio began 0.0 s after the start" in outcome.summary()[1]
