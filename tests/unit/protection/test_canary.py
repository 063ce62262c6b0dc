"""The a canary: a detector that does not detect, or a fail-closed policy that does not stop, is the end of a
column."""

from __future__ import annotations

import pytest

from harness.model.errors import CommandFailed
from harness.protection import canary
from harness.protection.capture import Capture, Seen
from harness.protection.xfrm_listener import ConnectAttempt, XfrmListeners
from tests.unit.fakes import FakeXfrmListener

REFUSED = ConnectAttempt(error="ECONNREFUSED", blocked=0)
BLOCKED = ConnectAttempt(error="EPERM", blocked=1)


class Looks(Capture):
    """A capture whose looks show one thing after another: the segments in clear of both ends."""

    def __init__(self, *looks: tuple[int, int], fault: str | None = None) -> None:
        super().__init__(taps=(), one_in=1)
        self.looks, self.fault = list(looks), fault

    def look(self) -> list[Seen]:
        return [Seen(cleartext=count, fault=self.fault) for count in self.looks.pop(0)]


def attempting(near: ConnectAttempt, far: ConnectAttempt, times: int = 1) -> XfrmListeners:
    return XfrmListeners(
        ends=(FakeXfrmListener(attempts=[near] * times), FakeXfrmListener(attempts=[far] * times))
    )


def test_both_captures_have_to_see_what_both_ends_sent_in_clear_but_a_link_may_lose_some() -> None:
    assert canary.show(Looks((2, 2)), attempting(REFUSED, REFUSED)) == (2, 2)
    looks = Looks((1, 0), (0, 0), (1, 2))
    assert canary.show(looks, attempting(REFUSED, REFUSED, 3)) == (2, 2)
    assert looks.looks == []


def test_a_capture_that_sees_no_cleartext_proves_nothing_and_says_why() -> None:
    for near, far in ((0, 2), (2, 0), (0, 0)):
        reason = f", found {5 * near} and {5 * far}: the initiator's attempt ended"
        with pytest.raises(CommandFailed, match=reason):
            canary.show(
                Looks(*[(near, far)] * canary.ATTEMPTS), attempting(REFUSED, REFUSED, canary.ATTEMPTS)
            )
    blind = Looks(*[(0, 0)] * canary.ATTEMPTS, fault="tcpdump has ended")
    with pytest.raises(CommandFailed, match="tcpdump has ended; tcpdump has ended"):
        canary.show(blind, attempting(REFUSED, REFUSED, canary.ATTEMPTS))


def test_a_fail_closed_stops_and_counts_it_if_that_is_known_or_it_is_none() -> None:
    for counted in (1, 3, None):
        blocked = ConnectAttempt(error="EPERM", blocked=counted)
        assert canary.stop(Looks((0, 0)), attempting(blocked, BLOCKED)) == (counted, 1)
    for near, far, seen in (
        (REFUSED, BLOCKED, (0, 0)),
        (BLOCKED, REFUSED, (0, 0)),
        (ConnectAttempt(error="", blocked=1), BLOCKED, (0, 0)),
        (ConnectAttempt(error="EPERM", blocked=0), BLOCKED, (0, 0)),
        (BLOCKED, BLOCKED, (0, 1)),
        (BLOCKED, BLOCKED, (1, 0)),
    ):
        with pytest.raises(CommandFailed, match="expected the fail-closed policies to block") as error:
            canary.stop(Looks(seen), attempting(near, far))
        words = f"ended with {near.error or 'a connection'}, {near.blocked} packets blocked"
        assert words in error.value.message and f"{sum(seen)} segments on the link" in error.value.message
