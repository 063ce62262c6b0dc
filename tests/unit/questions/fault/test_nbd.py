"""How long NBD stands still, whose initiator does not connect a second time."""

from __future__ import annotations

import msgspec
import pytest

from harness.model.stalls import LogLine
from harness.questions.fault.section import Fault
from harness.questions.fault.theory import NEVER, NONE, StallBounds, expected
from tests.unit.questions.fault.made import S, assert_settings_say, planned, record, said_of, stalled


def test_nobody_sets_a_timeout_unless_asked() -> None:
    assert planned(transports=("nbd",)).parameters["nbd"] == {"timeout": "0"}
    assert planned(transports=("nbd",), nbd=("timeout=30",)).parameters["nbd"] == {"timeout": "30"}


@pytest.mark.parametrize(
    ("fault", "session", "found"),
    [
        (Fault("loss-100", 30.0), {"timeout": "0"}, StallBounds(51.0, 59.5)),
        # It fails the requests before TCP sends again.
        (Fault("loss-100", 30.0), {"timeout": "10"}, None),
        (Fault("connection-reset"), {}, NEVER),
        # The target is heard again after TCP's least timeout.
        (Fault("endpoint-changed", 5.0), {}, StallBounds(0.2, 0.7)),
        (Fault("endpoint-changed", 0.1), {}, StallBounds(0.2, 0.2)),
        # Of 180 s that keys last, 3 to 13 are over; a handshake is tried again after 5 s.
        (Fault("handshakes-blocked", 100.0), {}, NONE),
        (Fault("handshakes-blocked", 165.0), {}, StallBounds(0.0, 4.5)),
        (Fault("handshakes-blocked", 200.0), {}, StallBounds(23.0, 39.5)),
        # MKA misses an end after 6 s, a hello of 2 s sooner or later.
        (Fault("key-server-gone", 4.0), {}, NONE),
        (Fault("key-server-gone", 5.0), {}, StallBounds(0.0, 7.3)),
        (Fault("key-server-gone", 20.0), {}, StallBounds(12.6, 30.1)),
    ],
)
def test_settings_say_how_long_a_stall_is(
    fault: Fault, session: dict[str, str], found: StallBounds | None
) -> None:
    assert_settings_say("nbd", fault, session, found)


@pytest.mark.parametrize(("timeout", "who"), [("0", "the initiator's kernel"), ("10", "timeout (10 s)")])
def test_a_timer_that_is_off_decides_nothing(timeout: str, who: str) -> None:
    stall = stalled((3, 0.001, 0), (5, 0.2, 0), (2, 0.001, 0))
    gone = LogLine(at_ns=23 * S, text="block nbd0: Receive control failed (result -104)")
    said = said_of(msgspec.structs.replace(stall, messages=(gone,)), "nbd", timeout=timeout)
    assert f"20.0 s after the fault began, {who} gave the connection up" in said, said


@pytest.mark.parametrize(
    ("lasts_s", "dpd_delay", "is_foretold"),
    # With 10 s, 113.8 and 347.8 s were measured: after 175 s charon gave its peer up.
    [(100, "10", True), (300, "10", False), (300, "0", True), (300, None, True)],
)
def test_nothing_is_foretold_where_charon_gives_its_peer_up(
    lasts_s: int, dpd_delay: str | None, is_foretold: bool
) -> None:
    stall = msgspec.structs.replace(stalled((5, 0.001, 0)), fault=f"loss-100:{lasts_s}s")
    stall = msgspec.structs.replace(stall, ended_ns=stall.began_ns + lasts_s * S)
    agreed = {"aes128gcm16": {"mode": "transport"} | ({"dpd_delay": dpd_delay} if dpd_delay else {})}
    made = msgspec.structs.replace(record(stall, "nbd"), agreed=agreed)
    assert (expected(made, stall) is not None) is is_foretold
