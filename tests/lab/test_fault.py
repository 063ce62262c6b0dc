"""Faults in virtual time: I/O stands still for as long as settings say, to a step of the kernel's timers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from harness.model import Record, Status
from harness.model.stalls import Stall
from harness.questions.fault import printed
from harness.questions.fault.theory import expected
from tests.lab.cli import harness, in_lab_that_is_up, run_inside, well

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

HOW = ("fault", "--virtual-time", "--size", "32M", "--retries", "0")

PROTECTED = ("--ipsec", "off", "--protect", "aes128gcm16", "--protect", "wireguard")

TRANSPORTS = ("--transport", "iscsi", "--transport", "nvme-tcp", "--transport", "nbd")

LASTING = (
    *("link-down:4s", "initiator-link-down:4s", "loss-100:2s", "loss-100-to-target:2s"),
    *("loss-100-to-initiator:2s", "target-down:5s", "connection-reset"),
)
OF_KEYS = ("sa-deleted", "rekey-ike", "rekey-child", "ike-daemon-killed:5s", "ike-daemon-stopped:5s")
BY_CHANCE = ("loss-1:2s", "loss-10:2s", "delay-10x:2s", "delay-100x:2s")

RTO_S = 0.22
"""TCP's least timeout, 200 ms, and the round trip's variation, in this kernel's steps of 10 ms (HZ 100)."""

STEP_S = 0.64
"""Of a timer of 5 to 41 s, with that clock (kernel/time/timer.c)."""


def measured(
    results: Path, *words: str, faults: Iterable[str], links: Iterable[str] = ("wired",)
) -> dict[tuple[str, str], Record]:
    """By column and fault, without what a column does not have; in none was anything in clear."""
    asked = [word for fault in faults for word in ("--fault", fault)]
    asked += [word for link in links for word in ("--link", link)]
    found = {}
    for record in in_lab_that_is_up(results, *HOW, *words, *asked).records.values():
        if record.status is Status.SKIPPED:
            assert record.reason and re.search("can break, found one|link with hops that", record.reason)
            continue
        assert (record.status, record.reason) == (Status.OK, None), record.column
        assert record.proof is not None
        assert not record.column.protection or record.proof.cleartext_segments == 0
        stall = of(record)
        # A connection that never comes back lets nothing be read back.
        assert stall.lost == 0 and (stall.not_read_back is None or not stall.is_over)
        found[record.column.label, stall.fault] = record
    return found


def of(record: Record) -> Stall:
    assert record.stall is not None
    return record.stall


def as_settings_say(records: Iterable[Record]) -> int:
    """How many have a formula, of which each holds."""
    rows = [(record.column.label, of(record), expected(record, of(record))) for record in records]
    judged = [(label, stall, say) for label, stall, say in rows if say is not None]
    wrong = []
    for label, stall, say in judged:
        if not say.holds(stall):
            wrong.append((label, stall.fault, stall.lasted_ns, say))
    assert not wrong
    return len(judged)


@pytest.mark.core
def test_i_o_stands_still_for_as_long_as_settings_say(tmp_path: Path) -> None:
    faults = ("link-down:5s", "loss-100:5s", "target-down:5s", "connection-reset")
    found = measured(tmp_path, "--ipsec", "both", faults=faults)
    assert as_settings_say(found.values()) == len(found) == 8
    for (_, fault), record in found.items():
        stall = of(record)
        assert stall.is_over and not stall.errnos and stall.written > 300
        # One that vanishes is sent again after 1, 3, 7, 15, 31 timeouts.
        if fault == "loss-100:5s":
            assert stall.stall_ns and stall.stall_ns / 1e9 == pytest.approx(31 * RTO_S, rel=0.03)
    said = " ".join(well(harness("explain", str(tmp_path))).out.split())
    assert "wired, loss-100:5s: I/O stood still for 6." in said
    # The kernel says when TCP sent again, and iscsid connects anew. Who sees that a link is up again says
    # nothing.
    by = {"loss-100": "sent again after 3.", "link-down": ""}
    for (_, fault), record in found.items():
        assert by.get(fault.partition(":")[0], "connected again") in decided(record), decided(record)


@pytest.mark.long
def test_each_fault_of_each_transport_and_protection_is_as_settings_say(tmp_path: Path) -> None:
    faults = (*LASTING, "target-down:15s", "login-refused:5s", *OF_KEYS, *BY_CHANCE)  # NBD has no login
    found = measured(tmp_path, *PROTECTED, *TRANSPORTS, faults=faults)
    assert len(found) == 9 * 12 + 6 + 3 * 5
    # Who decided is known of each that had to wait.
    unknown = {fault for (_, fault), record in found.items() if of(record).stall_ns and not decided(record)}
    assert unknown <= {*BY_CHANCE, "link-down:4s", "initiator-link-down:4s"}, unknown
    # NVMe over WireGuard may give up before TCP, which is not told that an interface is down, sends again.
    assert as_settings_say(found.values()) == 9 * 8 + 6 + 3 * 4 + 1 - 2


@pytest.mark.long
def test_a_link_may_be_down_for_any_time(tmp_path: Path) -> None:
    """Where nothing gives the connection up: TCP and ARP are anywhere in their waits when it is up again."""
    faults = [
        f"{end}link-down:{s}s" for s in (0.7, 3.1, 5.7, 8.2, 11, 15.5, 27.3) for end in ("", "initiator-")
    ]
    found = measured(tmp_path, *PROTECTED, "--transport", "nbd", faults=faults)
    assert as_settings_say(found.values()) == len(found) == 3 * 14


@pytest.mark.long
def test_a_disk_that_fails_and_one_that_stalls(tmp_path: Path) -> None:
    """Errors reach the application at once. A stall that ends before requests are given up lasts as long as
    the fault; NVMe gives its connection up for a longer one, and iSCSI waits."""
    transports = ("--ipsec", "off", "--transport", "iscsi", "--transport", "nvme-tcp", "--transport", "nbd")
    failed = measured(tmp_path / "errors", *transports, faults=["disk-errors:5s"])
    assert as_settings_say(failed.values()) == 3
    for record in failed.values():
        stall = of(record)
        assert stall.errnos.keys() == {"eio"} and stall.longest_ns < stall.late_ns
    moving = ("--disk", "hdd-7200", "--rate", "30")
    stalled = measured(
        tmp_path / "stalls", *transports, *moving, faults=["disk-stalls:5s", "disk-stalls:45s"]
    )
    assert as_settings_say(stalled.values()) == 3
    assert all(not of(record).errnos and of(record).is_over for record in stalled.values())
    said = printed.sentences([stalled["wired.nvme-tcp", "disk-stalls:45s"]])
    assert "initiator's kernel gave a request up (nvme_core.io_timeout)" in " ".join(said)


@pytest.mark.long
def test_over_ipv6_each_fault_is_as_settings_say(tmp_path: Path) -> None:
    found = measured(tmp_path, "--ip", "6", *PROTECTED, faults=(*LASTING, *OF_KEYS, *BY_CHANCE))
    assert len(found) == 3 * 11 + 5
    assert as_settings_say(found.values()) == 3 * 7 + 4


@pytest.mark.long
@pytest.mark.parametrize("ip", ["4", "6"])
def test_over_hops_each_fault_is_as_settings_say(tmp_path: Path, ip: str) -> None:
    faults = ("link-down:4s", "initiator-link-down:4s", "hop-down:4s", "loss-100:2s")
    found = measured(tmp_path, "--ip", ip, *PROTECTED, faults=faults, links=("routed", "switched"))
    assert as_settings_say(found.values()) == len(found) == 2 * 3 * 4


@pytest.mark.long
def test_over_wifi_a_station_that_lost_its_access_point_is_back(tmp_path: Path) -> None:
    faults = ("ap-restarted:3s", "out-of-range:3s", "roam")
    found = measured(tmp_path, *PROTECTED, faults=faults, links=("wifi",))
    assert len(found) == 9
    for record in found.values():
        if of(record).fault == "roam":
            assert (of(record).stall_ns or 0) < 1.5e9, of(record)
            continue
        stall, associated = of(record), [state.bssid is not None for state in record.wifi]
        assert not all(associated) and associated[0] and associated[-1]
        # It looks each 5 s (wpa_supplicant), and TCP is told that nothing leaves.
        assert stall.stall_ns and 3 < stall.stall_ns / 1e9 < 3 + 5 + 1.5, stall


def decided(record: Record) -> str:
    """What the answer says of the timer that decided."""
    (said,) = printed.sentences([record])
    return " ".join(part for part in said.split(". ") if "it decided" in part)


@pytest.mark.long
def test_twice_the_timer_that_decides_moves_a_stall_and_twice_another_does_not(tmp_path: Path) -> None:
    """Also where none that can be set decides: iscsid logs in anew each 2 s, whatever its timers are."""
    usual = {
        "iscsi": {"noop_out_interval": 5, "noop_out_timeout": 5, "replacement_timeout": 120},
        "nvme-tcp": {"keep_alive_tmo": 5, "reconnect_delay": 10, "ctrl_loss_tmo": 600},
    }
    rows = 0
    for transport, timers in usual.items():
        option = f"--{transport.partition('-')[0]}"
        words = (*PROTECTED, "--transport", transport)
        faults = ("target-down:5s", "connection-reset")
        as_usual = measured(tmp_path / transport, *words, faults=faults)
        for name, value_s in timers.items():
            twice = (option, f"{name}={2 * value_s}")
            doubled = measured(tmp_path / f"{transport}-{name}", *words, *twice, faults=faults)
            for key, record in doubled.items():
                moved_s = ((of(record).lasted_ns or 0) - (of(as_usual[key]).lasted_ns or 0)) / 1e9
                by_s = value_s if name in decided(as_usual[key]) else 0
                assert moved_s == pytest.approx(by_s, abs=2 * STEP_S), (key, name)
                assert (by_s > 0) is (name == "reconnect_delay")
                rows += 1
    assert rows == 36


def with_timers(
    results: Path, transport: str, faults: Iterable[str], settings: Mapping[str, float]
) -> dict[tuple[str, str], Record]:
    option = f"--{transport.partition('-')[0]}"
    set_to = (f"{option}={name}={value_s:g}" for name, value_s in settings.items())
    return measured(results, *PROTECTED, "--transport", transport, *set_to, faults=faults)


@pytest.mark.long
def test_what_a_shorter_timer_is_said_to_change_is_seen(tmp_path: Path) -> None:
    """Each forecast is tried: the setting that it names, and the same fault."""
    tried = 0
    for transport, faults, settings in (
        ("iscsi", ["loss-100:150s"], {}),
        ("nvme-tcp", ["connection-reset", "target-down:5s", "target-down:15s"], {}),
        ("nvme-tcp", ["target-down:60s"], {"fast_io_fail_tmo": 30.0}),
        ("nvme-tcp", ["target-down:120s"], {"ctrl_loss_tmo": 80.0}),
        # It waits twice as long, and says not for what: nothing is foretold.
        ("nbd", ["loss-100:60s"], {"timeout": 30.0}),
    ):
        usual = with_timers(tmp_path / f"{tried}", transport, faults, settings)
        for (column, fault), forecast in (
            (key, each) for key, record in usual.items() for each in printed.forecasts(record, of(record))
        ):
            shorter = settings | {forecast.name: forecast.value_s}
            again = with_timers(tmp_path / f"{tried}-tried", transport, [fault], shorter)
            stall = of(again[column, fault])
            came_ns = stall.first_error_ns if forecast.are_errors else stall.lasted_ns
            assert came_ns is not None, (column, fault, str(forecast))
            after_s = (came_ns - forecast.are_errors * stall.began_ns) / 1e9
            said = (column, fault, str(forecast), after_s)
            assert forecast.bounds.least_s <= after_s <= forecast.bounds.most_s, said
            tried += 1
    assert tried == 3 * 6


@pytest.mark.long
def test_a_fault_of_a_portal_is_at_the_initiator_s_own_end() -> None:
    said = ["a portal: stood still", "another session: left alone", "killed: the kernel ended the fault"]
    run_inside("inside.faulted_portal", said=said)


@pytest.mark.long
@pytest.mark.parametrize("planted", ["lost", "clear"])
def test_what_is_planted_is_found_in_each_of_ten_cells(planted: str) -> None:
    run_inside("inside.planted_faults", planted, said=[f"{planted}: found 10 of 10"])


@pytest.mark.long
def test_errors_come_when_the_timer_that_decides_has_run_out(tmp_path: Path) -> None:
    """After noop_out_interval and noop_out_timeout, 5 s each, and replacement_timeout, in the kernel's steps;
    twice the last one is as much later."""
    came_s = {}
    for timeout_s in (15, 30):
        words = ("--ipsec", "off", "--iscsi", f"replacement_timeout={timeout_s}")
        found = measured(tmp_path / f"{timeout_s}", *words, faults=["loss-100:60s"])
        stall = of(found["wired", "loss-100:60s"])
        assert stall.first_error_ns is not None and stall.errnos.keys() == {"eio"}
        came_s[timeout_s] = (stall.first_error_ns - stall.began_ns) / 1e9
    assert came_s[30] - came_s[15] == pytest.approx(15, abs=STEP_S)


@pytest.mark.long
def test_each_value_of_a_setting_has_a_session_of_its_own(tmp_path: Path) -> None:
    """Errors come as much later as its timer is longer, and how long a server is missed is left as it is."""
    over = ("--over", "replacement_timeout=5,15", "--ipsec", "off")
    plain = ("--transport", "iscsi", "--transport", "nbd")
    made = in_lab_that_is_up(
        *(tmp_path, *HOW, *over, *plain, "--link", "wired"),
        *("--fault", "loss-100:40s", "--fault", "connection-reset"),
    ).records.values()
    assert {record.reason for record in made} == {None}
    found = {(record.column.transport, of(record).fault, of(record).set_to): record for record in made}
    values = [f"replacement_timeout={value_s}" for value_s in (5, 15)]
    assert len(found) == len(made) == 2 * 2 + 2 and ("nbd", "connection-reset", "") in found
    assert as_settings_say(record for record in made if of(record).fault == "connection-reset") == 3
    came_s = []
    for value in values:
        stall = of(found["iscsi", "loss-100:40s", value])
        assert found["iscsi", "loss-100:40s", value].session["recovery_tmo"] == value.partition("=")[2]
        assert stall.first_error_ns is not None and stall.errnos.keys() == {"eio"} and stall.is_over
        came_s.append((stall.first_error_ns - stall.began_ns) / 1e9)
    assert came_s[1] - came_s[0] == pytest.approx(10, abs=STEP_S)
    said = well(harness("explain", str(tmp_path))).out
    assert all(value in said for value in values)


@pytest.mark.long
def test_new_keys_that_are_not_made_are_missed_when_the_present_ones_end(tmp_path: Path) -> None:
    """WireGuard's, 180 s after its last handshake; and it finds a peer again that it hears."""
    faults = ("endpoint-changed:5s", *(f"handshakes-blocked:{lasts_s}s" for lasts_s in (100, 200, 300)))
    transports = [word for name in ("iscsi", "nvme-tcp", "nbd") for word in ("--transport", name)]
    found = measured(tmp_path, *PROTECTED[:2], "--protect", "wireguard", *transports, faults=faults)
    assert len(found) == 3 * 4
    # iSCSI and NVMe give up before a new handshake succeeds.
    assert as_settings_say(found.values()) == 12 - 2 * 2
    for lasts_s in (200, 300):
        stall = of(found["wired+wireguard.nbd", f"handshakes-blocked:{lasts_s}s"])
        # REKEY_TIMEOUT and its jitter, twice: a handshake that began before the end fails after it.
        assert stall.over_ns is not None and 0 <= (stall.over_ns - stall.ended_ns) / 1e9 < 2 * 5.34 + STEP_S


@pytest.mark.long
def test_a_channel_has_no_keys_soon_after_its_key_server_is_gone(tmp_path: Path) -> None:
    faults = [f"key-server-gone:{lasts_s}s" for lasts_s in (3, 10, 20)]
    transports = [word for name in ("iscsi", "nvme-tcp", "nbd") for word in ("--transport", name)]
    found = measured(tmp_path, *PROTECTED[:2], "--protect", "macsec-mka", *transports, faults=faults)
    assert len(found) == 3 * 3
    # iSCSI and NVMe may give the connection up before TCP sends again.
    assert as_settings_say(found.values()) == 3 + 2
    for (_, fault), record in found.items():
        assert bool(of(record).late) is (fault != "key-server-gone:3s")
