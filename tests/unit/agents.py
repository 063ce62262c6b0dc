"""The agent as an ordinary process: without root, its places in a folder of the test's, and impatient."""

from __future__ import annotations

import re
from pathlib import Path

from harness.hosts import programs

SHORT_S = 0.5
"""In place of how long it waits for a daemon to end, or for a step that undoes something."""


def lasting(state: Path) -> Path:
    """Where that agent keeps the journal of what outlives a reboot."""
    return state.with_name(f"{state.name}-lasting")


def agent_source(state: Path) -> str:
    """The agent's program, keeping its locks and journals in ``state``, and beside it what is lasting."""
    text = programs.source("harness.hosts", "agent")
    for name, value in (
        ("STATE", f"Path({str(state)!r})"),
        ("LASTING", f"Path({str(lasting(state))!r})"),
        ("STOP_S", SHORT_S),
        ("UNDO_STEP_S", SHORT_S),
    ):
        text, count = re.subn(rf"^{name} = .*", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1, name
    return text
