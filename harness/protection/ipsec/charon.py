"""A charon of the run's own on a host, controlled by VICI, strongSwan's protocol for programs.

It runs next to any IKE daemon of the machine's, and shares only the kernel with it: it has another UDP port,
its own socket, configuration and list of plugins, and makes no routes, no routing rules and no sysctls. So
nothing of the user's is stopped, loaded or changed, and figures do not depend on the user's configuration.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vici.protocol import Message, Packet, Transport

from harness.hosts import Daemon, Host
from harness.model.errors import CommandFailed
from harness.model.escape import printable
from harness.model.protections import RETRANSMISSION

PROGRAM = "/usr/sbin/charon-systemd"
BASE_PLUGINS = (
    "random nonce openssl pem pkcs1 pkcs8 x509 pubkey kdf hmac sha2 aes gcm "
    "kernel-netlink socket-default vici"
)
"""With all of Debian's plugins charon takes 5 s longer to start, and `forecast` wakes it for each packet."""

ANY_PORT = 0
RUN = Path("/run")
CONFIGURATION, SOCKET = "charon.conf", "charon.vici"
"""Below charon's own /run. AppArmor's profile of charon-systemd (Debian's package) allows /run/charon.* and
little else for configuration. By default it only complains, but the administrator may enforce it."""

START = f'mount --bind "$1" {RUN} && exec "$2"'
"""For sh(1), in a mount namespace of charon's own. Arguments: the folder that becomes charon's /run, and
charon."""

ACQUIRE_EXPIRES = "/proc/sys/net/core/xfrm_acq_expires"
"""charon writes 165 s here when it starts, unless it is given another value: the present one."""

START_DEADLINE_S = 20.0
ANSWER_DEADLINE_S = 30.0

MOST_LOGGED = 1000

_SENT = re.compile(r"sending packet: from \S+ to (?P<address>\S+)\[(?P<port>\d+)\]")
_NOISE = re.compile(r"(generating|parsed) |(sending|received) packet|retransmit ")
"""Beginnings of lines that charon logs for each message of IKE."""


@dataclass(frozen=True, kw_only=True)
class Charon:
    """A running charon; one for each host, shared by its columns. ``socket`` leads to its VICI socket.
    ``daemon`` is its process, None while it starts. ``configured`` has the timers that it was started
    with, and ``log`` what it said, each line with its time in s since 1970."""

    host: Host
    socket: Path
    log: Path
    configured: Mapping[str, str] = field(default_factory=dict)
    daemon: Daemon | None = None

    def ask(
        self, command: str, message: Mapping[str, Any] | None = None, *, within_s: float = ANSWER_DEADLINE_S
    ) -> None:
        """Make charon carry out a command of VICI.

        ``message`` is nested: strings, bytes, lists of them, and sections. CommandFailed with charon's
        message if it refuses, or does not answer for ``within_s``; HostLost if the host is gone.
        """
        answer, events = self._exchange(command, message or {}, "control-log", within_s)
        if answer.get("success", b"yes") != b"yes":
            logged = [_text(event.get("msg")) for event in events]
            raise _refused(self.host.name, command, _text(answer.get("errmsg") or b"no reason given"), logged)

    def settings(self, name: str) -> dict[str, str]:
        """What it has of a connection and of its child of the same name, in the words of swanctl.conf(5)."""
        _, events = self._exchange("list-conns", {"ike": name}, "list-conn", ANSWER_DEADLINE_S)
        found: Mapping[str, Any] = next((event[name] for event in events if name in event), {})
        child = found.get("children", {}).get(name, {})
        pairs = [*found.items(), *child.items()]
        return {key: _text(value) for key, value in pairs if isinstance(value, bytes)}

    def _exchange(
        self, command: str, message: Mapping[str, Any], event: str, within_s: float
    ) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(within_s)
                connection.connect(str(self.socket))
                transport = _Bounded(connection, time.monotonic() + within_s)
                return _converse(transport, command, message, event)
        except (OSError, _BadViciMessage) as error:
            self.host.read_files([])  # raises HostLost, if that is the cause
            raise CommandFailed(
                f"expected charon on the {self.host.name} to answer `{command}`: {error}"
            ) from error

    def answers(self) -> bool:
        """Whether it is there, and listens."""
        try:
            self.ask("stats")
        except CommandFailed:
            return False
        return True


class _BadViciMessage(Exception):
    """An answer that is not VICI; says what it is."""


class _Bounded(Transport):  # type: ignore[misc]
    """A connection that accepts no packet larger than VICI's, and none after a moment (monotonic)."""

    def __init__(self, connection: socket.socket, until_s: float) -> None:
        super().__init__(connection)
        self._until_s = until_s

    def receive(self) -> bytes:
        (size,) = struct.unpack("!I", self._bytes(4))
        if size > Transport.MAX_SEGMENT:
            raise _BadViciMessage(f"it announced a packet of {size} bytes")
        return self._bytes(size)

    def _bytes(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("timed out")
            self.socket.settimeout(left_s)
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the connection ended")
            data += more
        return data


def _converse(
    transport: _Bounded, command: str, message: Mapping[str, Any], event: str
) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """Send a command; returns its answer, and the last events of a kind that came with it. OSError without an
    answer."""
    transport.send(Packet.register_event(event))
    transport.send(Packet.request(command, Message.serialize(message)))
    events: deque[Mapping[str, Any]] = deque(maxlen=MOST_LOGGED)
    while True:
        kind, answer = _parsed(transport.receive())
        if kind == Packet.EVENT:
            events.append(answer)
        elif kind == Packet.CMD_RESPONSE:
            return answer, list(events)
        elif kind != Packet.EVENT_CONFIRM:
            raise OSError(f"it does not know `{command}`")


def _parsed(data: bytes) -> tuple[int, Mapping[str, Any]]:
    """The kind of a packet, and the message in it."""
    try:
        packet = Packet.parse(data)
        has_message = packet.response_type in (Packet.EVENT, Packet.CMD_RESPONSE)
        return packet.response_type, Message.deserialize(packet.payload) if has_message else {}
    # The library raises any kind of error when it reads what is not there.
    except Exception as error:
        raise _BadViciMessage("the answer is not VICI") from error


def _text(words: object) -> str:
    return printable(words.decode("utf-8", "replace")) if isinstance(words, bytes) else "nothing that is text"


def _refused(host: str, command: str, words: str, logged: Sequence[str]) -> CommandFailed:
    last = [line for line in logged if not _NOISE.match(line)][-3:]
    hint = None
    if any(line.startswith("retransmit ") for line in logged):
        sent = next(filter(None, map(_SENT.match, reversed(logged))), None)
        where = f"{sent['address']}, UDP port {sent['port']}" if sent else "its peer"
        hint = f"nothing came back from {where}: does a firewall drop it?"
    return CommandFailed(
        f"charon on the {host} did not carry out `{command}`: {' / '.join([words, *last])}", hint=hint
    )


@contextlib.contextmanager
def running(
    host: Host,
    folder: Path,
    *,
    log: Path,
    plugins: str,
    port: int = ANY_PORT,
    timers: Mapping[str, str] = RETRANSMISSION,
) -> Iterator[Charon]:
    """Keep a charon running on a host while the context lasts.

    ``folder`` is for its socket and configuration, ``port`` the UDP port on which it can be called.
    ``timers`` replace strongSwan's.
    """
    (expires,) = host.read_files([ACQUIRE_EXPIRES])
    expires = expires.strip() or "165"
    configured = {**RETRANSMISSION, **timers}
    # strongSwan 6 has time_precision in place of time_add_ms.
    of_daemon = "\n".join(f"    {name} = {value}" for name, value in configured.items())
    host.write_secret(
        folder / CONFIGURATION,
        f"""\
charon-systemd {{
    load = {plugins}
    port = {port}
    port_nat_t = {ANY_PORT}
    install_routes = no
    routing_table = 0
{of_daemon}
    plugins {{
        vici {{
            socket = unix://{RUN / SOCKET}
        }}
        kernel-netlink {{
            xfrm_acq_expires = {expires}
        }}
    }}
    journal {{
        default = -1
    }}
    filelog {{
        stderr {{
            default = 1
            flush_line = yes
            time_format = %s
            time_add_ms = yes
            time_precision = ms
        }}
    }}
}}
""",
    )
    with host.reach(folder / SOCKET) as near:
        configured["xfrm_acq_expires"] = expires
        charon = Charon(host=host, socket=near, log=log, configured=configured)
        with host.daemon(
            ["unshare", "--mount", "sh", "-c", START, "sh", str(folder), PROGRAM],
            log=log,
            ready=charon.answers,
            deadline_s=START_DEADLINE_S,
            env={"STRONGSWAN_CONF": str(RUN / CONFIGURATION)},
        ) as daemon:
            yield replace(charon, daemon=daemon)
