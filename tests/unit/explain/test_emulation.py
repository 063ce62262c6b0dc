"""What the emulation of a link costs: how a run finds out, where explain shows it, what is left out for it.
Times are those of the custom kernel on a machine with two processors."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from harness.analysis.interval import Interval, exact, within
from harness.analysis.limit import Limit
from harness.explain import explain, lab_limited, waterfall
from harness.explain.evidence import collect
from harness.explain.text import Explained, sentence
from harness.explain.verdict import judge
from harness.hosts import NamespaceHost
from harness.model import Clock, Hops, Job, LinkProfile, Record
from harness.model.telemetry import ProcessorUse, Telemetry
from harness.network.links import LinkPath
from harness.parse.profiles import load_link
from harness.probes import emulation
from harness.table import TableFormat, build, render
from tests.unit.command import harness
from tests.unit.explain import test_explain as base
from tests.unit.explain.test_explain import US, asked, columns, evidence_of, key, known, measured
from tests.unit.results_folder import WIRED, made_plan, write
from tests.unit.table.test_table import cells_of

BARE = LinkProfile(name="bare", title="x", emulated=True)
TENG = load_link("10g")


def link_path(profile: LinkProfile = BARE, target: Any = None) -> LinkPath:
    """A path whose ends are both here, by the loopback interface."""
    here: dict[str, Any] = dict.fromkeys(("initiator_iface", "target_iface"), "lo")
    here |= dict.fromkeys(("initiator_address", "target_address"), "127.0.0.1")
    here |= {"initiator": NamespaceHost("initiator"), "target": target or NamespaceHost("target")}
    return LinkPath(profile=profile, index=0, **here)


OF_A_KIND_THAT_IS_NOT_HERE = Hops(kind="gone", count=1, least=1, most=1)


def test_the_profile_and_the_bare_exchange_are_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    # By its profile an exchange takes both delays and all frames.
    request, answer = 138, 2 * 1538 + 1338
    assert emulation.profile_ns(WIRED) == pytest.approx(2 * 50_000 + 8 * (request + answer))
    # Medians of exchanges over a link and over the loopback interface, and what is left beyond the profile.
    for profile, over_link_us, bare_us, left_us in (
        (WIRED, 292.7, 85.0, 71.3),
        (TENG, 203.3, 88.0, 91.7),
        (BARE, 85.0, 84.9, 0.1),
    ):
        times = iter([[over_link_us * US] * 5, [bare_us * US] * 5])
        monkeypatch.setattr(emulation, "_exchanges_ns", lambda *_, times=times: next(times))
        found = emulation.round_trip_ns(link_path(profile))
        assert found == pytest.approx(left_us * US, abs=100), profile.name


def test_a_bare_link_emulates_next_to_nothing_and_one_that_does_not_answer_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert 0 <= known(emulation.round_trip_ns(link_path())) < 1_000_000

    monkeypatch.setattr(socket.socket, "connect", Mock(side_effect=TimeoutError))
    assert emulation.round_trip_ns(link_path()) is None
    monkeypatch.setattr(emulation, "_exchanges_ns", lambda *_: pytest.fail("something was sent"))
    # Where the profile does not tell: another kernel, a real link, a narrow window, one far away, and so on.
    assert emulation.round_trip_ns(link_path(target=object())) is None
    changes: list[dict[str, Any]] = [{"emulated": False}, {"interface": "eth0"}, {"tcp_window_bytes": 4096}]
    for change in (*changes, {"delay_us": 20_000}, {"hops": OF_A_KIND_THAT_IS_NOT_HERE}):
        assert emulation.round_trip_ns(link_path(replace(BARE, **change))) is None, change


def telemetry(
    emulation_ns: float | None = 71_300.0, wall_ns: int = 11 * 10**8, busiest_core: float = 0.41
) -> Telemetry:
    hosts = ("initiator", "target")
    use = ProcessorUse(hosts=hosts, wall_ns=wall_ns, cores=1, busiest_core=busiest_core)
    return Telemetry(processors=(use,), emulation_round_trip_ns=emulation_ns)


def test_an_io_pays_for_each_of_its_round_trips_and_with_others_in_flight_perhaps_nothing() -> None:
    record = measured("wired", "off", 2500, telemetry=telemetry(), emulated=True, fio_ns=10**9)
    written = [replace(one, read=None, write=one.read) for one in record]
    for records, trips in ((record, 1), (written, 2)):
        found = evidence_of(records)["wired"]
        assert known(found.path).round_trips == trips
        assert found.emulation_ns == Interval(trips * 71_300 / 2, trips * 71_300, trips * 71_300 * 2)
    deep = measured("wired", "off", 2500, workload="deep", telemetry=telemetry())
    found = evidence_of(deep, jobs=(Job(name="deep", options=base.QUEUED),))["wired"]
    assert found.emulation_ns == Interval(0, 71_300, 71_300 * 2)


def test_of_one_run_the_least_counts_and_several_calibrate_it_several_times() -> None:
    seen = (("wired", "off", 700_000.0), ("wired", "aes128gcm16", 60_000.0), ("wifi", "off", 1_000.0))
    found = evidence_of(
        [one for link, ipsec, ns in seen for one in measured(link, ipsec, 3000, telemetry=telemetry(ns))]
    )
    for column in ("wired", "wired+aes128gcm16"):
        assert found[column].emulation_ns == Interval(30_000, 60_000, 120_000)
    records = [
        replace(one, run_id=run, telemetry=telemetry(ns))
        for run, ns in (("r1", 60_000.0), ("r2", 100_000.0))
        for one in measured("wired", "off", 2500)
    ]
    (several,) = collect(records, {run: made_plan(run_id=run) for run in ("r1", "r2")})
    assert several.emulation_ns == Interval(30_000, 80_000, 200_000)
    # In virtual time and in older records there is no such part.
    virtual = {"clock": Clock.VIRTUAL, "telemetry": telemetry()}
    for changes in (virtual, {"telemetry": telemetry(None)}, {"telemetry": None}):
        (explained,) = explain(measured("wired", "off", 2500, **changes), {"r1": base.plan_of_them()})
        assert explained.evidence.emulation_ns is None, changes
        assert "emulation" not in explained.verdict.waterfall_ns, changes


def read_4k(link: LinkProfile, time_us: float, emulation_us: float, **changes: Any) -> Explained:
    """A 4K read at depth 1 as it was measured, with a device of 10.6 us."""
    emulation_ns = Interval(emulation_us * US / 2, emulation_us * US, emulation_us * US * 2)
    whole: dict[str, Any] = {"key": key(link=link.name), "path": asked(link, block_bytes=4096)}
    whole |= {"block_bytes": 4096, "time_ns": within(time_us * US, 0.02), "emulation_ns": emulation_ns}
    whole |= {"device_ns": within(10.6 * US, 0.05), "is_emulated": True}
    return Explained.of(base.cell(**whole | changes))


def test_over_10_gigabit_the_lab_limits() -> None:
    """177.9 us, of which the link takes 24, and 16.3 over no link at all."""
    found = read_4k(TENG, 177.9, 91.7, busy=within(0.75, 0.01))
    parts = found.verdict.waterfall_ns
    assert parts["emulation"] == 91_700 and 0 < parts["cpu"] < 60_000
    assert sum(parts.values()) == found.verdict.whole_ns
    assert found.verdict.limited_by is Limit.LAB and found.verdict.is_lab_limited
    assert found.verdict.change is None
    words = (
        "limited by the lab itself (emulation takes about 92 us of each I/O, core 75% busy): 81% of the time"
    )
    assert sentence(found).startswith(words)
    # Of the busy core that is left over which is neither the device's nor the link's.
    parts_ns = waterfall.parts(known(waterfall.best_guess(found.evidence)))
    left_us = 177.9 - 10.6 - 24.0
    assert parts_ns["cpu"] + parts_ns["emulation"] == pytest.approx(left_us * US, rel=0.01)
    # A protected cell that the emulation limits is the lab's as well.
    path = asked(TENG, block_bytes=4096, framing=base.GCM_ESP)
    gcm: dict[str, Any] = {"key": key("aes128gcm16", link=TENG.name), "path": path}
    gcm |= {"emulation_ns": exact(120 * US), "cipher_ns": within(4 * US, 0.1)}
    assert read_4k(TENG, 190, 91.7, **gcm).verdict.is_lab_limited


def test_over_gigabit_the_link_takes_longer_than_the_lab() -> None:
    """231.9 us: of what was "cpu" most is the emulation's. A core that it wakes counts as busy."""
    found = read_4k(WIRED, 231.9, 71.3, busy=within(0.41, 0.01))
    parts = found.verdict.waterfall_ns
    assert parts["emulation"] == 71_300 and parts["cpu"] < 15_000
    assert (found.verdict.limited_by, found.verdict.is_lab_limited) == (Limit.ROUND_TRIP, False)
    # It takes no more than is left.
    parts = read_4k(WIRED, 150, 71.3, busy=within(0.41, 0.01)).verdict.waterfall_ns
    assert parts["emulation"] < 4_000 and (parts["cpu"], parts["rest"]) == (0, 0)
    parts = read_4k(WIRED, 100, 71.3).verdict.waterfall_ns
    assert parts["emulation"] == 0 > parts["rest"]
    # Of an unshaped link all is the lab's: 16.3 us for 4K.
    found = read_4k(BARE, 16.3, 0.0, busy=within(0.91, 0.01), device_ns=within(5.0 * US, 0.05))
    assert found.verdict.is_lab_limited and "emulation" not in sentence(found)
    assert "emulation" not in found.verdict.waterfall_ns


def test_with_protection_the_emulation_is_no_work_of_the_protections() -> None:
    """12.5 ms with GCM: the emulation is apart from processor work, which stays the verdict."""
    slow = {"null": None, "cipher_ns": within(500 * US, 0.1), "is_emulated": True}
    before = judge(base.protected(**slow)).waterfall_ns
    said = judge(base.protected(**slow, emulation_ns=exact(71.3 * US)))
    after = said.waterfall_ns
    assert said.limited_by is Limit.CPU
    assert after["emulation"] == 71_300 and after["crypto"] == before["crypto"]
    assert before["cpu"] + before["rest"] == after["cpu"] + after["rest"] + 71_300


def lab_limited_columns() -> list[Record]:
    """Gigabit, on which 256K take 20 ms: the core is busy nearly all the time."""
    slow = telemetry(80_000.0, 2 * 10**9, 0.97)
    others = [one for one in columns() if one.column.link == "local" or one.column.protection]
    found = measured("wired", "off", 20_000, telemetry=slow, emulated=True)
    return others + [replace(each, fio_ns=known(each.read).runtime_ns) for each in found]


def test_a_table_marks_what_the_lab_limits() -> None:
    records, plans = lab_limited_columns(), {"r1": base.plan_of_them()}
    own = lab_limited(records, plans)
    assert [(cell.key.label, cell.workload) for cell in own] == [("wired", "seq-read-256k")]
    assert own == {c.evidence.cell for c in explain(records, plans) if c.verdict.is_lab_limited}
    table = build(records, plans=plans, lab_limited=own)
    (note,) = [note for note in table.marks if note.startswith("lab: ")]
    assert "not the emulated link" in note
    text = render(table)
    assert "13.08 lab ±" in text and note in text
    for format in (TableFormat.MARKDOWN, TableFormat.HTML, TableFormat.LATEX):
        assert "13.08 lab" in render(table, format)
    marked = {(c["column"]["link"], *c["column"]["protection"]): c["is_lab_limited"] for c in cells_of(table)}
    others = [("local",), ("wired", "null-sha256"), ("wired", "aes128gcm16")]
    assert marked == {("wired",): True} | dict.fromkeys(others, False)
    assert not lab_limited(columns(), plans)
    assert not any(note.startswith("lab: ") for note in build(columns(), plans=plans).marks)


def test_the_commands_mark_it_and_leave_it_out(tmp_path: Path) -> None:
    def printed(*words: str) -> str:
        return harness(words[0], str(tmp_path), *words[1:], cwd=tmp_path).stdout

    write(tmp_path, lab_limited_columns(), base.plan_of_them())
    for _ in range(2):  # the second time from the cache
        assert "13.08 lab ±" in printed("table")
    marked, explained = (
        json.loads(printed(word, "--format", "json"))["cells"] for word in ("table", "explain")
    )
    for cells in (marked, explained):
        (own,) = [cell["column"] for cell in cells if cell["is_lab_limited"]]
        assert (own["link"], own["protection"]) == ("wired", [])
    (wired,) = [c for c in explained if c["limited_by"] == "lab"]
    assert wired["waterfall_ns"]["emulation"] == 80_000 and wired["change"] is None
    summary = " ".join(printed("explain", "--summary").split())
    assert re.search(r"No answer on wired\S+, wired\S+: the lab limited it or its baseline", summary)
    assert "Figures limited by the lab (wired) do not describe such a link." in summary
    assert harness("report", str(tmp_path), "-o", "page.html", cwd=tmp_path).returncode == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "13.08 lab" in page and "limited by the lab, not by the emulated link" in page
    assert ">emulation</text>" in page
