"""The clock of a host, by which its programs and its kernel say when something happened."""

from __future__ import annotations

import time


def monotonic_ns() -> int:
    return time.monotonic_ns()


def unix_ns() -> int:
    """What logs have."""
    return time.time_ns()
