"""What TCP itself says of the connections to a portal, at the initiator: tcp_info, as ss(8) prints it.

``busy`` and what limits it is counted by who sends (kernel commit 05b055e89121): of reads that is the target,
so this end knows only what it let the target send at once, its window. ss leaves out what is zero.
"""

from __future__ import annotations

import contextlib
import re

import msgspec

from harness.hosts import Host
from harness.model import addresses
from harness.model.errors import CommandFailed
from harness.model.telemetry import TcpUse

_COUNT = re.compile(r"\b(bytes_sent|bytes_received|bytes_retrans|busy|rwnd_limited|sndbuf_limited):(\d+)")
_RTT_MS = re.compile(r"\brtt:([\d.]+)/")
_LEAST_MS = re.compile(r"\bminrtt:([\d.]+)")
_WINDOW = re.compile(r"\brcv_ssthresh:(\d+)")

MS_NS = 10**6


def look(host: Host, near: str, portal: str, port: int, *, is_here: bool = False) -> str:
    """Its connections to the portal, a line for each; empty if ss does not show them.

    If the host ``is_here``, on this kernel, that is asked without a program, which takes its time in the lab.
    """
    if is_here:
        with contextlib.suppress(CommandFailed):
            reported = host.call(__package__, "tcp", "established", near, portal, str(port))
            return msgspec.json.decode(reported, type=str)
        return ""
    words = ["src", addresses.bracketed(near), "dst", addresses.at_port(portal, port)]
    done = host.run(["ss", "-tinHO", "state", "established", *words], check=False)
    return done.stdout if done.status == 0 else ""


def between(host: str, before: str, after: str) -> TcpUse | None:
    """What grew between two looks, and how it was at the second one; None if there was no connection."""
    if not before.strip() or not after.strip():
        return None
    was, now = _counts(before), _counts(after)
    grown = {name: max(0, now.get(name, 0) - was.get(name, 0)) for name in now}
    trips, least = ([float(each) for each in found.findall(after)] for found in (_RTT_MS, _LEAST_MS))
    windows = [int(each) for each in _WINDOW.findall(after)]
    return TcpUse(
        host=host,
        sent_bytes=grown.get("bytes_sent", 0),
        received_bytes=grown.get("bytes_received", 0),
        retransmitted_bytes=grown.get("bytes_retrans", 0),
        busy_ns=grown.get("busy", 0) * MS_NS,
        peer_window_ns=grown.get("rwnd_limited", 0) * MS_NS,
        buffer_ns=grown.get("sndbuf_limited", 0) * MS_NS,
        round_trip_ns=max(trips) * MS_NS if trips else None,
        least_round_trip_ns=min(least) * MS_NS if least else None,
        window_bytes=max(windows) if windows else None,
    )


def _counts(text: str) -> dict[str, int]:
    """The counters of all connections together."""
    found: dict[str, int] = {}
    for name, number in _COUNT.findall(text):
        found[name] = found.get(name, 0) + int(number)
    return found
