"""How long NVMe/TCP stands still, and which of its timers decides."""

from __future__ import annotations

import msgspec
import pytest

from harness.model.errors import UsageError
from harness.model.stalls import LogLine
from harness.questions.fault.around import AroundFault
from harness.questions.fault.section import SECTION, Fault
from harness.questions.fault.theory import StallBounds
from harness.results import rules
from harness.runs import around
from tests.unit.questions.fault.made import (
    REBOOTED,
    S,
    assert_settings_say,
    cells,
    planned,
    said_of,
    stalled,
)


def test_a_timer_that_is_said_when_it_begins_decides_when_it_has_run_out() -> None:
    stall = stalled((3, 0.001, 0), (5, 0.2, 0), (2, 0.001, 0))
    waits = LogLine(at_ns=8 * S, text="nvme nvme0: Reconnecting in 10 seconds...")
    late = msgspec.structs.replace(stall, over_ns=18 * S + S // 2, messages=(waits,))
    said = said_of(late, "nvme-tcp", reconnect_delay="10")
    assert "reconnect_delay (10 s) waited before the next try: it decided." in said
    assert "it decided" not in said_of(stall, "nvme-tcp", reconnect_delay="10")


def test_what_comes_before_a_timer_has_run_out_is_not_the_timer_s() -> None:
    stall = stalled((3, 0.001, 0), (5, 0.2, 0), (2, 0.001, 0))
    for after_s, words in (
        (0, "At once, the initiator's kernel gave"),
        (7, "7.0 s after the fault began, keep_alive_tmo (5 s)"),
    ):
        lost = LogLine(at_ns=(3 + after_s) * S, text="nvme nvme0: starting error recovery")
        said = said_of(msgspec.structs.replace(stall, messages=(lost,)), "nvme-tcp", kato="5")
        assert words in said, said


def test_a_request_that_was_given_up_is_not_the_keep_alive_s() -> None:
    stall = stalled((3, 0.001, 0), (5, 0.2, 0), (2, 0.001, 0))
    for queue, words in (
        (0, "keep_alive_tmo (5 s) gave the connection up"),
        (1, "the initiator's kernel gave the connection"),
    ):
        said = ("starting error recovery", f"queue {queue}: timeout request 0x2c type 4")
        messages = tuple(LogLine(at_ns=33 * S, text=f"nvme nvme0: {text}") for text in said)
        answer = said_of(msgspec.structs.replace(stall, messages=messages), "nvme-tcp", kato="5")
        assert words in answer, answer
        assert (
            "30.0 s after the fault began, the initiator's kernel gave a request up (nvme_core.io" in answer
        ) is (queue == 1)


@pytest.mark.parametrize(
    ("fault", "session", "found"),
    [
        # It may give the connection up before TCP sends again.
        (Fault("loss-100", 5.0), {"kato": "5"}, None),
        (Fault("target-down", 15.0), {"reconnect_delay": "10"}, StallBounds(19.6, 21.8)),
        (Fault("connection-reset"), {"reconnect_delay": "20"}, StallBounds(19.6, 21.2)),
        # Without tlshd the target refuses each try; one that is stopped is waited for, 10 s each time.
        (Fault("handshake-daemon-killed", 15.0), {"reconnect_delay": "10"}, StallBounds(19.6, 21.8)),
        (Fault("handshake-daemon-stopped", 5.0), {"reconnect_delay": "10"}, StallBounds(9.8, 11.0)),
        (Fault("handshake-daemon-stopped", 15.0), {"reconnect_delay": "10"}, StallBounds(14.7, 15.4)),
        (Fault("handshake-daemon-stopped", 25.0), {"reconnect_delay": "10"}, StallBounds(29.4, 32.7)),
    ],
)
def test_settings_say_how_long_a_stall_is(
    fault: Fault, session: dict[str, str], found: StallBounds | None
) -> None:
    assert_settings_say("nvme-tcp", fault, session, found)


def test_a_transport_without_the_setting_has_its_cells_once() -> None:
    def settings(*over: str) -> list[tuple[str | None, dict[str, str]]]:
        plan = planned("loss-100:5s", over=over, transports=("iscsi", "nvme-tcp"))
        rules.check(plan)
        return [(column.transport, SECTION.of(plan).of_jobs[job].parameters) for column, job in plan.places]

    of_iscsi = [("iscsi", {"replacement_timeout": value}) for value in ("5", "15")]
    assert settings("replacement_timeout=5,15") == [*of_iscsi, ("nvme-tcp", {})]
    of_nvme = [("nvme-tcp", {"keep_alive_tmo": value}) for value in ("5", "10", "20")]
    assert settings("replacement_timeout=5,15", "keep_alive_tmo=5,10,20") == [*of_iscsi, *of_nvme]
    with pytest.raises(UsageError, match="there is no iSCSI or NVMe/TCP parameter 'timeout'"):
        settings("timeout=5,15")


def test_a_target_that_has_booted_has_the_modules_of_all_transports() -> None:
    plan = planned(**REBOOTED, ipsec=("off",), transports=("iscsi", "nvme-tcp"))
    for cell in cells(plan):
        broken = around.of(plan, cell)
        assert isinstance(broken, AroundFault) and {"iscsi_target_mod", "nvmet_tcp"} <= {*broken.modules}
