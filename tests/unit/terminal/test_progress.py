"""How a run looks: names and reasons of others' choosing are shown as they are, and clocks may be set."""

from __future__ import annotations

import contextvars
import io
import re
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest
from rich.console import Console

from harness.analysis.disturbance import Disturbed
from harness.model import Status
from harness.results.events import CellEnded, CellStarted, CellWithdrawn, Ended, Event, Phase, Spent, ago_s
from harness.terminal.progress import bar, follow, left_s
from harness.terminal.streams import be_quiet

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
    outcome = follow(events(name), cells=1, console=console, started_s=started_s)
    assert outcome.summary()[0].startswith("1 measurement (1 invalid)")
    with bar(f"making {name}", console) as report:
        report(f"building {name}", 0.5)
    shown = name.encode("unicode_escape").decode() if not name.isprintable() else name
    for words in ("because of", "withdrawn for", "disturbed: by"):
        assert f"{words} {shown}" in file.getvalue()
    assert "\x07" not in file.getvalue() and "\x1b[2J\x07" not in file.getvalue()


def summary_of_a_cell(of_fio_ns: int, began_ago_s: Callable[[], float], *, started_s: float) -> list[str]:
    def cells() -> Iterator[Event]:
        yield CellStarted("a.r1", 1, 1)
        yield CellEnded("a.r1", Status.OK, None, of_fio_ns, began_ago_s())
        yield Ended(())

    outcome = follow(cells(), cells=1, console=Console(file=io.StringIO()), started_s=started_s)
    return outcome.summary(is_verbose=True)


def test_a_clock_that_is_set_during_a_run_changes_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = summary_of_a_cell(10**9, lambda: 3600.0, started_s=time.monotonic() - 2)
    assert "fio began 0.0 s after the start" in forward[1]
    now = iter(range(10**6, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    monkeypatch.setattr("harness.terminal.progress.time.monotonic", lambda: 100.0)
    back = summary_of_a_cell(5 * 10**8, lambda: ago_s(float(10**6)), started_s=90.5)
    assert back[0] == "1 measurement (1 ok) in 9.5 s"
    assert back[1].startswith("fio began 9.5 s after the start and measured for 5%")


def test_the_summary_says_what_the_rest_of_the_time_went_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.terminal.progress.time.monotonic", lambda: 500.0)

    def run() -> Iterator[Event]:
        yield CellEnded("a.r1", Status.OK, None, 9 * 10**9, 0.0)
        yield Spent(
            {"columns up": 120.0, "fio and proof": 109.0, "columns down": 43.0, "probes": 4.9},
            "fio and proof",
        )
        yield Ended(())

    outcome = follow(run(), cells=1, console=Console(file=io.StringIO()), started_s=0.0)
    assert outcome.summary(is_verbose=True)[2] == (
        "the rest: hosts, disk, end 3 min 43 s, columns up 2 min 0 s, fio and proof 1 min 40 s, "
        "columns down 43 s"
    )


def shown(ended: Sequence[CellEnded], *, is_terminal: bool, cell_s: float = 1.0, quiet: bool = False) -> str:
    """What is printed while such cells end, one after the other; without what follows the last of them."""
    file, now, at_the_end = io.StringIO(), [100.0], list[str]()
    console = Console(file=file, force_terminal=is_terminal, color_system=None, width=200, height=50)

    def events() -> Iterator[Event]:
        yield Phase("making and filling the disk")
        for number, event in enumerate(ended, 1):
            yield CellStarted(event.key, number, len(ended))
            now[0] += cell_s
            yield event
        at_the_end.append(file.getvalue())
        yield Ended(())

    def followed() -> None:
        be_quiet(quiet)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("harness.terminal.progress.time.monotonic", lambda: now[0])
            follow(events(), cells=len(ended), console=console, started_s=100.0)

    contextvars.copy_context().run(followed)
    return at_the_end[0] + file.getvalue() if is_terminal else file.getvalue()


def cells(count: int) -> list[CellEnded]:
    return [
        CellEnded(f"wired.nvme-tcp.seq-read-4k.r{number}", Status.OK, None, 1, 0.0, None, 12.345e6 * number)
        for number in range(1, count + 1)
    ]


def test_a_terminal_shows_the_last_figure() -> None:
    said = shown(cells(4), is_terminal=True)
    assert re.search(r"seq-read-4k\.r4 49\.38 MB/s", said), said


def test_a_log_has_a_line_each_ten_seconds() -> None:
    said = shown(cells(320), is_terminal=False).splitlines()
    assert said[:3] == [
        "making and filling the disk",
        "[10/320] wired.nvme-tcp.seq-read-4k.r10 123.45 MB/s, 5 min left",
        "[20/320] wired.nvme-tcp.seq-read-4k.r20 246.90 MB/s, 5 min left",
    ]
    assert len(said) == 33 and said[-1].endswith(", 0 s left")
    assert len(shown(cells(3), is_terminal=False, cell_s=60.0).splitlines()) == 4


@pytest.mark.parametrize("quiet", [False, True])
def test_a_log_is_told_at_once_what_failed_and_only_once_that_all_are_disturbed(quiet: bool) -> None:
    disturbed = [msgspec.structs.replace(cell, disturbed=Disturbed(0.5, "by cc1")) for cell in cells(12)]
    failed = CellEnded("wifi.off.x.r1", Status.FAILED, "fio ended with status 1", 0, 0.0)
    said = shown([*disturbed, failed], is_terminal=False, quiet=quiet).splitlines()
    trouble = "wifi.off.x.r1 failed: fio ended with status 1"
    assert said == ([trouble] if quiet else [
        "making and filling the disk",
        "wired.nvme-tcp.seq-read-4k.r1 ok: 12.35 MB/s, but disturbed: by cc1",
        "[10/13] wired.nvme-tcp.seq-read-4k.r10 123.45 MB/s, 3 s left, 10 disturbed",
        trouble,
    ])  # fmt: skip


def test_a_quiet_terminal_has_no_bar() -> None:
    assert "49.38" not in shown(cells(4), is_terminal=True, quiet=True)


@pytest.mark.parametrize(
    ("ends_s", "left"),
    [([], None), ([5.0], None), ([0.0, 9.0], 27.0), ([0.0, 40.0, 50.0, 51.0, 52.0], 0.0)],
)
def test_what_is_left_goes_by_the_later_half_of_what_ended(ends_s: list[float], left: float | None) -> None:
    assert left_s(ends_s, 4) == left
    if len(ends_s) > 4:
        assert left_s(ends_s, 14) == 10.0  # the first two brought up their columns
