"""Time that the emulation of a link adds to a round trip, and that a real link would not.

This process holds both ends of a TCP connection over the bare link, one in each namespace, and sends what an
iSCSI command that reads 4 KiB sends: 48 bytes there, 48 and 4096 back (RFC 7143, section 11). The time of the
exchange, without that of the same exchange over the loopback interface and without what the profile says of
it, is what timers, wake-ups and cold caches add while netem holds packets back. The loopback interface takes
as long as a bare veth pair: 85 us each in the lab, of which most is Python's.

No program is started. A link takes up to a tenth of a second, one as slow as `wan` twice as much.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time

from harness.analysis import stats, theory
from harness.analysis.theory import Wire
from harness.hosts import Host, NamespaceHost
from harness.hosts.namespaces import NotEntered, within
from harness.model import LinkProfile
from harness.network.links import LinkPath

REQUEST_BYTES = 48
ANSWER_BYTES = 48 + 4096
FEWEST, MOST = 5, 100
"""Exchanges behind a figure."""

UNCOUNTED = 2
"""The first exchanges, which find the neighbour's address and fill caches."""

BUDGET_NS = 100_000_000
"""No exchange begins later than this after the first, but the fewest are made in any case."""

LONGEST_NS = 30_000_000
"""Of a profile's exchange: compared with more than that, what the emulation adds is too little to measure."""

PATIENCE_S = 0.5
LOOPBACK = "127.0.0.1"
_RESET = struct.pack("ii", 1, 0)


def round_trip_ns(path: LinkPath) -> float | None:
    """What a round trip over an emulated link takes beyond its profile, in ns, 0 or more: a median of up to
    ``MOST``.

    An I/O's own round trips cost half to twice as much of it (docs/lab.md). None if that is unknown: the ends
    are in two kernels, the profile does not say what a round trip takes, or the exchange fails.
    """
    if not is_known(path):
        return None
    try:
        over_link = _exchanges_ns(path.initiator, path.target, path.target_address)
        bare = _exchanges_ns(path.target, path.target, LOOPBACK)
    except (OSError, NotEntered):
        return None
    return max(0.0, stats.median(over_link) - stats.median(bare) - profile_ns(path.profile))


def is_known(path: LinkPath) -> bool:
    """Whether both ends are in this kernel, and the profile says that the exchange takes no long time."""
    profile = path.profile
    return (
        profile.emulated
        and profile.interface is None
        and isinstance(path.initiator, NamespaceHost)
        and isinstance(path.target, NamespaceHost)
        and (profile.hops is None or profile.hops.is_timed)
        # A narrower window would stop the answer in its middle.
        and (profile.tcp_window_bytes is None or profile.tcp_window_bytes >= 2 * ANSWER_BYTES)
        and profile_ns(profile) <= LONGEST_NS
    )


def profile_ns(profile: LinkProfile) -> float:
    """What an exchange takes by the profile alone, in ns."""
    wire = Wire(link=profile)
    answer = theory.segmented([(ANSWER_BYTES, False)], wire.mss_bytes)
    return (wire.one_way_s([REQUEST_BYTES]) + wire.one_way_s(answer)) * 1e9


def _exchanges_ns(near: Host, far: Host, address: str) -> list[float]:
    """The times of exchanges between two ends. Raises OSError and NotEntered."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_socket(far, address))
        listening.bind((address, 0))
        listening.listen(1)
        client = stack.enter_context(_socket(near, address))
        client.connect(listening.getsockname()[:2])
        server = stack.enter_context(listening.accept()[0])
        for end in (client, server):
            end.settimeout(PATIENCE_S)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began_ns, times_ns = time.monotonic_ns(), list[float]()
        while len(times_ns) < UNCOUNTED + MOST:
            now_ns = time.monotonic_ns()
            if now_ns - began_ns > BUDGET_NS and len(times_ns) >= UNCOUNTED + FEWEST:
                break
            _send(client, server, REQUEST_BYTES)
            _send(server, client, ANSWER_BYTES)
            times_ns.append(time.monotonic_ns() - now_ns)
        # Reset and not closed, and awaited: nothing of it may be on the link when a capture begins.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        client.close()
        with contextlib.suppress(ConnectionResetError):
            server.recv(1)
        return times_ns[UNCOUNTED:]


def _socket(host: Host, address: str) -> socket.socket:
    """A socket in a host's namespace, where it stays."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        made.settimeout(PATIENCE_S)
        return made

    return make() if host.netns is None else within(host.netns, make, socket.socket.close)


def _send(sender: socket.socket, receiver: socket.socket, length: int) -> None:
    sender.sendall(bytes(length))
    while length:
        got = len(receiver.recv(length))
        if not got:
            raise ConnectionError("the other end closed the connection")
        length -= got
