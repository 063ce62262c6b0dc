"""What the emulation of a link costs: how a run finds out, where explain shows it, what is left out for it.

Times are those of the lab's own kernel on a machine with two processors.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.explain import Explained, Limit, explain, lab_limited, sentence, waterfall
from harness.explain.evidence import collect
from harness.explain.span import Span, exact, within
from harness.explain.verdict import judge
from harness.hosts import NamespaceHost
from harness.model import Clock, HopKind, Hops, Job, LinkProfile, OpenFlow, Record
from harness.model.telemetry import ProcessorUse, Telemetry
from harness.network.links import LinkPath
from harness.parse.profiles import load_link
from harness.probes import emulation
from harness.table import TableFormat, build, render
from tests.unit.command import harness
from tests.unit.explain.test_explain import GCM_ESP, US, asked, cell, columns, key, measured, plan_of_them
from tests.unit.explain.test_explain import protected as sealed
from tests.unit.results_folder import WIRED, made_plan, write
from tests.unit.table.test_table import cells_of

RECORDED_US = {
    "wired": (292.7, 85.0, 71.3),
    "10g": (203.3, 88.0, 91.7),
    "wired-unshaped": (85.0, 84.9, 0.1),
}
"""Medians of exchanges over a link and over the loopback interface, and what is left beyond the profile."""

BARE = LinkProfile(name="bare", title="x", emulated=True)
TENG = load_link("10g")


def link_path(profile: LinkProfile = BARE, **changes: Any) -> LinkPath:
    """A path whose ends are both here, by the loopback interface."""
    whole: dict[str, Any] = {
        "profile": profile,
        "index": 0,
        "initiator": NamespaceHost("initiator"),
        "target": NamespaceHost("target"),
        "initiator_iface": "lo",
        "target_iface": "lo",
        "initiator_address": "127.0.0.1",
        "target_address": "127.0.0.1",
    }
    return LinkPath(**whole | changes)


# How a run finds out


def test_by_its_profile_an_exchange_takes_both_delays_and_all_frames() -> None:
    request, answer = 138, 2 * 1538 + 1338
    assert emulation.profile_ns(WIRED) == pytest.approx(2 * 50_000 + 8 * (request + answer))


@pytest.mark.parametrize("link", RECORDED_US)
def test_the_profile_and_the_bare_exchange_are_taken_off(link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    over_link, bare, left = RECORDED_US[link]
    times = iter([[over_link * US] * 5, [bare * US] * 5])
    monkeypatch.setattr(emulation, "_exchanges_ns", lambda *_: next(times))
    profile = {"wired": WIRED, "10g": TENG, "wired-unshaped": BARE}[link]
    assert emulation.round_trip_ns(link_path(profile)) == pytest.approx(left * US, abs=100)


def test_a_bare_link_emulates_next_to_nothing() -> None:
    found = emulation.round_trip_ns(link_path())
    assert found is not None and 0 <= found < 1_000_000


def test_a_link_that_does_not_answer_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert emulation.round_trip_ns(link_path()) is None


@pytest.mark.parametrize(
    "path",
    [
        link_path(target=object()),
        link_path(msgspec.structs.replace(BARE, emulated=False)),
        link_path(msgspec.structs.replace(BARE, interface="eth0")),
        link_path(msgspec.structs.replace(BARE, tcp_window_bytes=4096)),
        link_path(msgspec.structs.replace(BARE, delay_us=20_000)),
        link_path(
            msgspec.structs.replace(
                BARE,
                hops=Hops(
                    kind=HopKind.OPENFLOW, count=1, least=1, most=1, openflow=OpenFlow(controller="wired")
                ),
            )
        ),
    ],
    ids=["another kernel", "real", "an interface", "a narrow window", "far away", "a controller"],
)
def test_where_the_profile_does_not_tell_nothing_is_measured(
    path: LinkPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulation, "_exchanges_ns", lambda *_: pytest.fail("something was sent"))
    assert emulation.round_trip_ns(path) is None


# Where explain shows it


def telemetry(emulation_ns: float | None = 71_300.0) -> Telemetry:
    use = ProcessorUse(hosts=("initiator", "target"), wall_ns=11 * 10**8, cores=1, busiest_core=0.41)
    return Telemetry(processors=(use,), emulation_round_trip_ns=emulation_ns)


def test_an_io_pays_for_each_of_its_round_trips() -> None:
    record = measured("wired", "off", 2500, telemetry=telemetry(), emulated=True, fio_ns=10**9)
    (read,) = [e for e in collect(record, {"r1": plan_of_them()}) if e.column.link == "wired"]
    assert read.path is not None and read.path.round_trips == 1
    assert read.emulation_ns == Span(71_300 / 2, 71_300, 71_300 * 2)
    written = [msgspec.structs.replace(one, read=None, write=one.read) for one in record]
    (write,) = collect(written, {"r1": plan_of_them()})
    assert write.path is not None and write.path.round_trips == 2
    assert write.emulation_ns == Span(71_300, 2 * 71_300, 4 * 71_300)


def test_with_others_in_flight_it_may_cost_nothing() -> None:
    options = (("rw", "read"), ("bs", "256k"), ("ioengine", "libaio"), ("iodepth", "8"))
    plan = plan_of_them(jobs=(Job(name="deep", options=options),))
    (found,) = collect(measured("wired", "off", 2500, workload="deep", telemetry=telemetry()), {"r1": plan})
    assert found.emulation_ns == Span(0, 71_300, 71_300 * 2)


def test_of_one_run_the_least_counts_whichever_column_has_it() -> None:
    records = [
        *measured("wired", "off", 2500, telemetry=telemetry(700_000.0)),
        *measured("wired", "aes128gcm16", 3000, telemetry=telemetry(60_000.0)),
        *measured("wifi", "off", 9000, telemetry=telemetry(1_000.0)),
    ]
    found = {e.name: e.emulation_ns for e in collect(records, {"r1": plan_of_them()})}
    assert found["wired"] == found["wired+aes128gcm16"] == Span(30_000, 60_000, 120_000)


def test_several_runs_calibrate_it_several_times() -> None:
    records = [
        msgspec.structs.replace(one, run_id=run, telemetry=telemetry(ns))
        for run, ns in (("r1", 60_000.0), ("r2", 100_000.0))
        for one in measured("wired", "off", 2500)
    ]
    (found,) = collect(records, {run: made_plan(run_id=run) for run in ("r1", "r2")})
    assert found.emulation_ns == Span(30_000, 80_000, 200_000)


@pytest.mark.parametrize(
    "changes",
    [{"clock": Clock.VIRTUAL, "telemetry": telemetry()}, {"telemetry": telemetry(None)}, {"telemetry": None}],
    ids=["virtual", "unknown", "older"],
)
def test_in_virtual_time_and_in_older_records_there_is_no_such_part(changes: dict[str, Any]) -> None:
    (found,) = explain(measured("wired", "off", 2500, **changes), {"r1": plan_of_them()})
    assert found.evidence.emulation_ns is None and "emulation" not in found.verdict.waterfall_ns


def read_4k(link: LinkProfile, time_us: float, emulation_us: float, **changes: Any) -> Explained:
    """A 4K read at depth 1 as it was measured, with a device of 10.6 us."""
    whole: dict[str, Any] = {
        "key": key(link=link.name),
        "path": asked(link, block_bytes=4096),
        "block_bytes": 4096,
        "time_ns": within(time_us * US, 0.02),
        "device_ns": within(10.6 * US, 0.05),
        "emulation_ns": Span(emulation_us * US / 2, emulation_us * US, emulation_us * US * 2),
        "is_emulated": True,
    }
    return Explained.of(cell(**whole | changes))


def test_over_10_gigabit_the_lab_limits() -> None:
    """177.9 us, of which the link takes 24, and 16.3 over no link at all."""
    found = read_4k(TENG, 177.9, 91.7, busy=within(0.75, 0.01))
    parts = found.verdict.waterfall_ns
    assert parts["emulation"] == 91_700 and 0 < parts["cpu"] < 60_000
    assert sum(parts.values()) == found.verdict.whole_ns
    assert found.verdict.limited_by is Limit.LAB and found.verdict.is_lab_limited
    assert found.verdict.change is None
    words = "limited by the lab itself (its emulation some 92 us of each I/O, core 75% busy): 81% of the time"
    assert sentence(found).startswith(words)


def test_over_gigabit_the_link_takes_longer_than_the_lab() -> None:
    """231.9 us: of what was "cpu" most is the emulation's. A core that it wakes counts as busy."""
    found = read_4k(WIRED, 231.9, 71.3, busy=within(0.41, 0.01))
    parts = found.verdict.waterfall_ns
    assert parts["emulation"] == 71_300 and parts["cpu"] < 15_000
    assert (found.verdict.limited_by, found.verdict.is_lab_limited) == (Limit.ROUND_TRIP, False)


def test_it_takes_no_more_than_is_left() -> None:
    found = read_4k(WIRED, 150, 71.3, busy=within(0.41, 0.01))
    parts = found.verdict.waterfall_ns
    assert parts["emulation"] < 4_000 and (parts["cpu"], parts["rest"]) == (0, 0)
    short = read_4k(WIRED, 100, 71.3)
    assert short.verdict.waterfall_ns["emulation"] == 0 > short.verdict.waterfall_ns["rest"]


def test_with_protection_the_emulation_is_no_work_of_the_protections() -> None:
    """12.5 ms with GCM: the emulation is apart from processor work, which stays the verdict."""
    slow = {"null": None, "cipher_ns": within(500 * US, 0.1), "is_emulated": True}
    before = judge(sealed(**slow)).waterfall_ns
    after = judge(sealed(**slow, emulation_ns=exact(71.3 * US)))
    assert after.limited_by is Limit.CPU
    assert after.waterfall_ns["emulation"] == 71_300
    assert after.waterfall_ns["crypto"] == before["crypto"]
    assert (
        before["cpu"] + before["rest"] == sum(after.waterfall_ns[name] for name in ("cpu", "rest")) + 71_300
    )


def test_where_the_emulation_limits_a_protected_cell_is_the_labs_as_well() -> None:
    found = read_4k(
        TENG,
        190,
        91.7,
        key=key("aes128gcm16", link=TENG.name),
        path=asked(TENG, block_bytes=4096, framing=GCM_ESP),
        emulation_ns=exact(120 * US),
        cipher_ns=within(4 * US, 0.1),
    )
    assert found.verdict.is_lab_limited


def test_of_an_unshaped_link_all_is_the_labs() -> None:
    """16.3 us for 4K."""
    found = read_4k(BARE, 16.3, 0.0, busy=within(0.91, 0.01), device_ns=within(5.0 * US, 0.05))
    assert found.verdict.is_lab_limited and "emulation" not in sentence(found)
    assert "emulation" not in found.verdict.waterfall_ns


# What is marked


def lab_limited_columns() -> list[Record]:
    """Gigabit, on which 256K take 20 ms: the core is busy nearly all the time."""
    use = ProcessorUse(hosts=("initiator", "target"), wall_ns=2 * 10**9, cores=1, busiest_core=0.97)
    slow = Telemetry(processors=(use,), emulation_round_trip_ns=80_000.0)
    others = [one for one in columns() if one.column.link == "local" or one.column.protection]
    found = measured("wired", "off", 20_000, telemetry=slow, emulated=True)
    return others + [msgspec.structs.replace(r, fio_ns=r.read.runtime_ns) for r in found if r.read]


def test_a_table_marks_what_the_lab_limits() -> None:
    records, plans = lab_limited_columns(), {"r1": plan_of_them()}
    own = lab_limited(records, plans)
    assert [(cell.key.label, cell.workload) for cell in own] == [("wired", "seq-read-256k")]
    assert own == {c.evidence.cell for c in explain(records, plans) if c.verdict.is_lab_limited}
    table = build(records, plans=plans, lab_limited=own)
    (note,) = [note for note in table.marks if note.startswith("lab: ")]
    assert "not the link that it imitates" in note
    text = render(table)
    assert "13.08 lab ±" in text and note in text
    for format in (TableFormat.GITHUB, TableFormat.HTML, TableFormat.LATEX):
        assert "13.08 lab" in render(table, format)
    columns = {
        (c["column"]["link"], *c["column"]["protection"]): c["is_lab_limited"] for c in cells_of(table)
    }
    assert columns == {
        ("local",): False,
        ("wired",): True,
        ("wired", "null-sha256"): False,
        ("wired", "aes128gcm16"): False,
    }


def test_the_commands_mark_it_and_leave_it_out(tmp_path: Path) -> None:
    write(tmp_path, lab_limited_columns(), plan_of_them())
    for _ in range(2):  # the second time from the cache
        table = harness("table", str(tmp_path), cwd=tmp_path)
        assert "13.08 lab ±" in table.stdout, table
    marked = json.loads(harness("table", str(tmp_path), "--format", "json", cwd=tmp_path).stdout)["cells"]
    explained = json.loads(harness("explain", str(tmp_path), "--format", "json", cwd=tmp_path).stdout)[
        "cells"
    ]
    for cells in (marked, explained):
        (own,) = [cell["column"] for cell in cells if cell["is_lab_limited"]]
        assert (own["link"], own["protection"]) == ("wired", [])
    (wired,) = [c for c in explained if c["limited_by"] == "lab"]
    assert wired["waterfall_ns"]["emulation"] == 80_000 and wired["change"] is None
    summary = " ".join(harness("explain", str(tmp_path), "--summary", cwd=tmp_path).stdout.split())
    no_answer = "wired+aes128gcm16: no answer on IPsec aes128gcm16 over wired, because the lab itself limited"
    assert no_answer in summary
    assert "limited by the lab itself, so this says nothing of such a link (confidence " in summary
    assert harness("report", str(tmp_path), "-o", "page.html", cwd=tmp_path).returncode == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "13.08 lab" in page and "the lab limits it, and not the link that it imitates" in page
    assert ">emulation</text>" in page


def test_without_an_emulated_link_nothing_is_marked() -> None:
    assert not lab_limited(columns(), {"r1": plan_of_them()})
    plain = build(columns(), plans={"r1": plan_of_them()})
    assert not any(note.startswith("lab: ") for note in plain.marks)


def test_the_waterfall_says_what_is_left_over_of_the_busy_core() -> None:
    guess = waterfall.best_guess(read_4k(TENG, 177.9, 91.7, busy=within(0.75, 0.01)).evidence)
    assert guess is not None
    parts = waterfall.parts(guess)
    assert parts["cpu"] + parts["emulation"] == pytest.approx(177.9 * US - 10.6 * US - 24.0 * US, rel=0.01)
