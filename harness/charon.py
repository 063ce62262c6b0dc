"""A charon of the run's own on a host, and how it is talked to: by VICI, strongSwan's protocol for programs.

It runs beside whatever IKE daemon the machine has, and shares nothing with it but the kernel: another UDP
port, a socket, a configuration and a list of plugins of its own, no routes, no routing rules and no sysctls.
So nothing of the user's is stopped, loaded or changed, and figures do not depend on what he has configured.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vici.protocol import Message, Packet, Transport

from harness.errors import CommandFailed
from harness.escape import printable
from harness.hosts import Host

PROGRAM = "/usr/sbin/charon-systemd"
BASE_PLUGINS = (
    "random nonce openssl pem pkcs1 pkcs8 x509 pubkey kdf hmac sha2 aes gcm "
    "kernel-netlink socket-default vici"
)
"""With all that Debian has, charon takes 5 s longer to start, and `forecast` wakes it for each packet."""

ANY_PORT = 0
RUN = Path("/run")
CONFIGURATION, SOCKET = "charon.conf", "charon.vici"
"""Below charon's own /run. AppArmor's profile of charon-systemd (Debian's package) allows /run/charon.* and,
for configuration, little else; it only complains there, and may be enforced by the administrator."""

START = f'mount --bind "$1" {RUN} && exec "$2"'
"""For sh(1), in a mount namespace of charon's own. Arguments: the folder that charon has for /run, charon."""

ACQUIRE_EXPIRES = "/proc/sys/net/core/xfrm_acq_expires"
"""charon writes 165 s here when it starts, unless it is told another value: the one that is there."""

START_DEADLINE_S = 20.0
ANSWER_DEADLINE_S = 30.0

_SENT = re.compile(r"sending packet: from \S+ to (?P<address>\S+)\[(?P<port>\d+)\]")
_NOISE = re.compile(r"(generating|parsed) |(sending|received) packet|retransmit ")
"""Beginnings of lines that charon logs for each message of IKE."""


@dataclass(frozen=True, kw_only=True)
class Charon:
    """A running charon; one for each host, shared by its columns. ``socket`` leads to its VICI socket."""

    host: Host
    socket: Path

    def ask(
        self, command: str, message: Mapping[str, Any] | None = None, *, within_s: float = ANSWER_DEADLINE_S
    ) -> None:
        """Have charon carry out a command of VICI's.

        ``message`` is nested: strings, bytes, lists of them, and sections. Raises CommandFailed with charon's
        words if it refuses, or says nothing for ``within_s``; HostLost if the host is gone.
        """
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(within_s)
                connection.connect(str(self.socket))
                answer, logged = _converse(Transport(connection), command, message or {})
        except OSError as error:
            self.host.read_files([])  # which raises HostLost, if that is why
            raise CommandFailed(
                f"charon on the {self.host.name} was expected to answer `{command}`, but: {error}"
            ) from error
        if answer.get("success", b"yes") != b"yes":
            raise _refused(self.host.name, command, _text(answer.get("errmsg", b"no reason given")), logged)

    def answers(self) -> bool:
        """Whether it is there, and listens."""
        try:
            self.ask("stats")
        except CommandFailed:
            return False
        return True


def _converse(
    transport: Transport, command: str, message: Mapping[str, Any]
) -> tuple[Mapping[str, Any], list[str]]:
    """Send a command; its answer, and what charon logged for it. OSError if there is none."""
    transport.send(Packet.register_event("control-log"))
    transport.send(Packet.request(command, Message.serialize(message)))
    logged: list[str] = []
    while True:
        packet = Packet.parse(transport.receive())
        if packet.response_type == Packet.EVENT:
            logged.append(_text(Message.deserialize(packet.payload)["msg"]))
        elif packet.response_type == Packet.CMD_RESPONSE:
            return Message.deserialize(packet.payload), logged
        elif packet.response_type != Packet.EVENT_CONFIRM:
            raise OSError(f"it does not know `{command}`")


def _text(words: bytes) -> str:
    return printable(words.decode("utf-8", "replace"))


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
def running(host: Host, folder: Path, *, log: Path, plugins: str, port: int = ANY_PORT) -> Iterator[Charon]:
    """Keep a charon running on a host for the length of the context.

    ``folder`` is for its socket and configuration, ``port`` the UDP port on which it can be called.
    """
    (expires,) = host.read_files([ACQUIRE_EXPIRES])
    host.write_secret(
        folder / CONFIGURATION,
        f"""\
charon-systemd {{
    load = {plugins}
    port = {port}
    port_nat_t = {ANY_PORT}
    install_routes = no
    routing_table = 0
    plugins {{
        vici {{
            socket = unix://{RUN / SOCKET}
        }}
        kernel-netlink {{
            xfrm_acq_expires = {expires.strip() or 165}
        }}
    }}
    journal {{
        default = -1
    }}
    filelog {{
        stderr {{
            default = 1
            flush_line = yes
        }}
    }}
}}
""",
    )
    with host.reach(folder / SOCKET) as near:
        charon = Charon(host=host, socket=near)
        with host.daemon(
            ["unshare", "--mount", "sh", "-c", START, "sh", str(folder), PROGRAM],
            log=log,
            ready=charon.answers,
            deadline_s=START_DEADLINE_S,
            env={"STRONGSWAN_CONF": str(RUN / CONFIGURATION)},
        ):
            yield charon
