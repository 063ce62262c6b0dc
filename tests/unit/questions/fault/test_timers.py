"""What TCP and the daemons of protections say of their timers, and which of them decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.model import Column
from harness.model.errors import UsageError
from harness.model.stalls import LogLine, Stall
from harness.protection.layer import Said
from harness.questions.fault import logs, printed
from harness.questions.fault.programs import tcp
from harness.questions.fault.theory import NEVER, expected
from harness.results import rules
from tests.unit.fakes import World
from tests.unit.fakes.paths import link_path
from tests.unit.questions.fault.made import S, planned, record, said_of, stalled

HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def line(near: str, far: str, *, timer: str = "00:00000000", again: int = 0, timeout: int = 21) -> str:
    """As tcp_seq_show() of net/ipv4/tcp_ipv4.c has it; ports are hexadecimal, times are in 1/100 s."""
    return f"   0: {near} {far} 01 00000024:00000000 {timer} {again:08X} 0 0 0 2 0 {timeout} 4 30 10 -1\n"


NEAR, FAR, PORTAL = "0100120A:AE02", "0200120A:0CBC", 0x0CBC
ENDS = (NEAR, FAR)


def test_sockets_of_a_portal_and_when_their_timers_run_out() -> None:
    text = HEADING + line(NEAR, FAR, timer="01:000000A8", again=3, timeout=336)
    text += line(NEAR, "0200120A:0016", timer="01:00000010", again=1)  # SSH's
    text += "   2: 0100120A:AE03 0200120A:0CBC 06 00000000:00000000 03:00000A00 00000000 0 0 0 3 0\n"
    assert tcp.sockets(text, PORTAL, now_ns=S) == {ENDS: tcp.Socket(3, S + 168 * S // 100, 336 * S // 100)}
    (socket,) = tcp.sockets(HEADING + line(FAR, NEAR, timer="02:0000BEEF"), PORTAL, S).values()
    assert socket.due_ns is None, "a keep-alive is no retransmission"


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        # It ran out, and nothing came back yet, or all came back.
        (tcp.Socket(3, 2 * S, S), tcp.Socket(4, 9 * S, 2 * S), (2 * S, 4, 1.0)),
        (tcp.Socket(3, 2 * S, S), tcp.Socket(0, None, S), (2 * S, 4, 1.0)),
        # An earlier one was answered, before this one was due.
        (tcp.Socket(3, 9 * S, S), tcp.Socket(0, None, S), None),
        (tcp.Socket(3, 9 * S, S), tcp.Socket(3, 9 * S, S), None),
        # It could not leave its host.
        (tcp.Socket(3, 2 * S, S), tcp.Socket(3, 9 * S, S), (2 * S, 3, 1.0)),
        # What was sent for the first time has been answered.
        (tcp.Socket(0, 2 * S, S), tcp.Socket(0, 9 * S, S), None),
        (tcp.Socket(0, None, S), tcp.Socket(1, 9 * S, S), None),
    ],
)
def test_tcp_has_sent_again_if_its_timer_ran_out(
    before: tcp.Socket, after: tcp.Socket, found: tuple[int, int, float] | None
) -> None:
    assert tcp.sent_again(before, after, now_ns=3 * S) == found


def test_a_watch_tells_new_connections_and_what_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, now_s = tmp_path / "tcp", 0
    monkeypatch.setattr(tcp, "FILES", (str(file), str(tmp_path / "tcp6")))
    monkeypatch.setattr("time.time_ns", lambda: now_s * S)
    waits = line(NEAR, FAR, timer="01:00000064", again=0, timeout=100)
    states = [waits, line(NEAR, FAR, timer="01:000000C8", again=1), line(FAR, "0100120A:AE04")]
    file.write_text(HEADING + states.pop(0))

    def later(_interval_s: float) -> None:
        nonlocal now_s
        now_s += 1
        file.write_text(HEADING + states.pop(0))

    monkeypatch.setattr("time.sleep", later)
    watch = tcp.watch(PORTAL)
    assert next(watch) == (1 * S, 1, 1.0), "the first sockets are no new ones"
    assert next(watch) == (2 * S, 0, 0.0)
    states += [line(NEAR, FAR, timer="01:00000032", again=again, timeout=400) for again in (3, 3)]
    assert next(watch) == (3 * S, 0, 0.0), "as if it had been away"
    assert next(watch) == (3 * S + S // 2, 3, 0.5), "sooner than after its timeout"


def test_what_is_said_has_this_process_s_time(tmp_path: Path) -> None:
    (tmp_path / "tcp-initiator.txt").write_text("5000000000 3 1.68\n6000000000 0 0.0\n70000")
    (tmp_path / "tcp-target.txt").write_text("6000000000 0 0.0\n")

    class OfLayer:
        def said(self) -> list[Said]:
            return [Said("target", "charon", 8 * S, "giving up after 5 retransmits")]

    layers: Any = (OfLayer(),)
    assert [end for end, _ in logs.ends(link_path(World()), boots=True)] == ["initiator"]
    (first, _) = logs.heard(layers, tmp_path, {"initiator": S})
    assert first.at_ns == 4 * S, "who has booted is not heard"
    assert logs.heard(layers, tmp_path, {"initiator": S, "target": 2 * S}) == [
        Said("initiator", "TCP", 4 * S, "retransmission 3 after 1.68 s"),
        Said("initiator", "TCP", 5 * S, "new connection"),
        Said("target", "charon", 6 * S, "giving up after 5 retransmits"),
    ]


def with_lines(*lines: tuple[float, str, str]) -> Stall:
    """A fault from 3 to 5 s, I/O that is back at 8 s, and who said what, and when."""
    stall = stalled((3, 0.001, 0), (5, 0.2, 0), (2, 0.001, 0))
    stall = msgspec.structs.replace(stall, ended_ns=5 * S)
    messages = [LogLine(at_ns=round(at_s * S), source=source, text=text) for at_s, source, text in lines]
    return msgspec.structs.replace(stall, messages=tuple(messages))


def test_tcp_decided_if_it_sent_again_right_before_io_was_back() -> None:
    again = (7.9, "TCP", "retransmission 4 after 1.68 s")
    said = said_of(with_lines((5.5, "TCP", "retransmission 3 after 0.84 s"), again))
    words = "4.9 s after the fault began, the initiator's TCP sent again after 1.68 s (retransmission 4)"
    assert said.endswith(f"{words}: it decided.") and "0.84" not in said
    # iscsid looks once a second whether it has a connection: it decided if it was 2 s before.
    for at_s, decides in ((5.9, False), (6.1, True), (8.1, False)):
        said = said_of(with_lines((at_s, "TCP", "retransmission 4 after 1.68 s")))
        assert ("TCP" in said) is decides, at_s
    # What was sent before the fault ended was lost.
    lasting = msgspec.structs.replace(with_lines(again), ended_ns=round(8.0 * S))
    assert "TCP" in said_of(with_lines(again)) and "it decided" in said_of(lasting)
    assert "TCP" not in said_of(msgspec.structs.replace(lasting, ended_ns=round(8.01 * S)))


def test_iscsid_s_next_try_is_a_new_connection() -> None:
    said = said_of(with_lines((7.9, "TCP", "new connection")))
    assert "the initiator's TCP connected again, for iscsid tries every 2 s: it decided." in said


def over_ipsec(stall: Stall, **agreed: str) -> Any:
    made = record(stall)
    column = msgspec.structs.replace(made.column, protection=("aes128gcm16",))
    assert isinstance(column, Column)
    return msgspec.structs.replace(made, column=column, agreed={"aes128gcm16": agreed})


def test_charon_s_timers_count_until_io_is_back() -> None:
    stall = with_lines(
        (5.0, "charon", "giving up after 5 retransmits"),
        (6.0, "charon", "creating delete job for CHILD_SA ESP/0xca919402/198.18.0.1"),
        (7.0, "charon", "creating delete job for CHILD_SA ESP/0x00000000/198.18.0.1"),
        (7.5, "charon", "retransmit 2 of request with message ID 0"),
        (9.0, "charon", "giving up after 7 retransmits"),
    )
    (said,) = printed.sentences([over_ipsec(stall, xfrm_acq_expires="3")])
    assert (
        "2.0 s after the fault began, the initiator's charon gave its peer up after 5 retransmissions. "
        "3.0 s after the fault began, xfrm_acq_expires (3 s) ended the kernel's wait for keys. "
        "4.5 s after the fault began, the initiator's charon asked its peer again (retransmission 2)"
        ": it decided."
    ) in said
    assert "charon" not in said_of(stall), "without IPsec there is none"


@pytest.mark.parametrize(
    ("settings", "most_s"),
    # 10 + 4 (1 + 1.8 + … + 1.8^5), and 10 + 1 + 2.
    [({}, 175.06), ({"retransmit_timeout": "1", "retransmit_base": "2", "retransmit_tries": "1"}, 13.0)],
)
def test_charon_gives_up_after_its_retransmissions(settings: dict[str, str], most_s: float) -> None:
    for lasts_s, is_foretold in ((0.4 * most_s, True), (most_s, False)):
        stall = msgspec.structs.replace(stalled((5, 0.001, 0)), fault=f"link-down:{lasts_s:g}s")
        stall = msgspec.structs.replace(stall, ended_ns=stall.began_ns + round(lasts_s * S))
        made = over_ipsec(stall, dpd_delay="10", **settings)
        assert (expected(made, stall) is not None) is is_foretold, lasts_s


def test_who_has_booted_is_missed_by_charon_only_if_it_asks() -> None:
    stall = stalled((3, 0.001, 0), (7, 0.2, 5))
    stall = msgspec.structs.replace(stall, fault="target-rebooted")
    made = over_ipsec(stall, dpd_delay="0")
    (said,) = printed.sentences([made])
    assert said.endswith("charon keeps them until it rekeys: try --ike dpd_delay=10s."), said
    assert expected(made, stall) is NEVER
    for other in (over_ipsec(stall, dpd_delay="10"), record(stall)):
        (said,) = printed.sentences([other])
        assert "dpd_delay" not in said and expected(other, stall) is None


def test_charon_s_own_timers_are_numbers_and_the_same_for_all_proposals() -> None:
    made = planned(ipsec=("on",), ike=("retransmit_base=1.4", "dpd_delay=10s"))
    (proposal,) = made.proposals.values()
    assert proposal.settings["retransmit_base"] == "1.4"
    with pytest.raises(UsageError, match="--ike: expected retransmit_tries as a number, found 'few'"):
        planned(ipsec=("on",), ike=("retransmit_tries=few",))
    another = msgspec.structs.replace(proposal, name="another", settings={"retransmit_base": "2"})
    two = msgspec.structs.replace(made, proposals={**made.proposals, "another": another})
    with pytest.raises(UsageError, match=r"one retransmit_base for all proposals, found 1\.4 and 2"):
        rules.check(two)
