"""Where machines are, as users type it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from harness.model import DEFAULT_TRANSPORT, TRANSPORTS, TransportName
from harness.model.errors import UsageError
from harness.model.escape import printable

LOCAL = "local"

_URL = re.compile(
    r"ssh://(?:(?P<user>\w[\w.+-]*)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|\w[\w.-]*)(?::(?P<port>\d{1,5}))?/?",
    re.ASCII,
)


class HostAddress(msgspec.Struct, frozen=True):
    """Where a host is: ``local``, or ``ssh://[USER@]HOST[:PORT]`` with HOST as ssh_config(5) knows it."""

    text: str

    @property
    def is_local(self) -> bool:
        return self.text == LOCAL

    def ssh_words(self) -> list[str]:
        """The words for ssh(1)."""
        match = _URL.fullmatch(self.text)
        if match is None:
            raise UsageError(f"expected ssh://[USER@]HOST[:PORT], found {printable(self.text)}")
        return [
            *(["-p", match["port"]] if match["port"] else []),
            *(["-l", match["user"]] if match["user"] else []),
            match["host"].strip("[]"),
        ]


@dataclass(frozen=True)
class PortalAddress:
    """A portal as it was ``typed``, by its parts; ``port`` is None for the transport's own, and ``name`` is
    that of a target or an export, "" for none."""

    typed: str
    transport: TransportName
    host: str
    port: int | None
    name: str = ""


_PORTAL = re.compile(
    rf"(?:(?P<transport>{'|'.join(TRANSPORTS)})://)?"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/(?P<name>[!-~]*))?"
)


def parse_portal(text: str) -> PortalAddress:
    """A portal: ``HOST[:PORT]``, with ``TRANSPORT://`` in front if it is not the default one's, and perhaps
    the name of a target or export after a slash. UsageError for anything else."""
    match = _PORTAL.fullmatch(
        f"[{text}]" if text.count(":") > 1 and text[0] != "[" and "/" not in text else text
    )
    if match is None or not 0 < int(match["port"] or 1) < 65536:
        raise UsageError(
            "expected a portal as HOST[:PORT] or TRANSPORT://HOST[:PORT][/NAME], with a transport of "
            f"{', '.join(TRANSPORTS)}, found {printable(text)}",
            hint="try --portal nas.lan or --portal [fd00::2]:3260",
        )
    return PortalAddress(
        typed=text,
        transport=msgspec.convert(match["transport"] or DEFAULT_TRANSPORT, TransportName),
        host=match["ipv6"] or match["host"],
        port=int(match["port"]) if match["port"] else None,
        name=match["name"] or "",
    )


def parse_address(text: str, what: str) -> HostAddress:
    """An address; UsageError unless it is ``local`` or an ssh URL."""
    match = _URL.fullmatch(text)
    if text != LOCAL and (match is None or not 0 < int(match["port"] or 22) < 65536):
        raise UsageError(
            f"expected {what} as ssh://[USER@]HOST[:PORT] or {LOCAL}, found {printable(text)}",
            hint=f"try --{what} ssh://root@server",
        )
    return HostAddress(text)
