"""How long NBD stands still, whose initiator does not connect a second time."""

from __future__ import annotations

import pytest

from harness.questions.fault.section import Fault
from harness.questions.fault.theory import NEVER, StallBounds
from tests.unit.questions.fault.made import assert_settings_say, planned


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
    ],
)
def test_settings_say_how_long_a_stall_is(
    fault: Fault, session: dict[str, str], found: StallBounds | None
) -> None:
    assert_settings_say("nbd", fault, session, found)
