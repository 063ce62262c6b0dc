"""What a new connection with TLS misses when the target's tlshd is gone, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.test_fault import STEP_S, as_settings_say, measured, of
from tests.lab.test_tls import SOURCE, with_tls

__all__ = ["with_tls"]


@pytest.mark.lab
@pytest.mark.usefixtures("with_tls")
def test_i_o_waits_for_a_handshake_that_nobody_answers(tmp_path: Path) -> None:
    """A try that is refused is repeated after 10 s (reconnect_delay). One that nobody answers waits for 10 s
    (tls_handshake_timeout), and succeeds if tlshd goes on meanwhile."""
    faults = (
        "connection-reset",
        "handshake-daemon-killed:15s",
        "handshake-daemon-stopped:15s",
        "handshake-daemon-stopped:25s",
    )
    words = (f"--lab-kernel={SOURCE}", "--transport=nvme-tcp", "--protect=tls")
    found = measured(tmp_path, *words, faults=faults)
    assert as_settings_say(found.values()) == len(found) == 4
    lasted_s = [(of(found["wired+tls.nvme-tcp", fault]).stall_ns or 0) / 1e9 for fault in faults]
    assert lasted_s == pytest.approx([10, 20, 15, 30], abs=2 * STEP_S)
    for record in found.values():
        assert of(record).is_over and not of(record).errnos
        assert record.agreed["tls"]["version"] == record.session["tls"] == "1.3"
