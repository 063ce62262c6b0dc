"""Where machines are, as users type it."""

from __future__ import annotations

import re

import msgspec

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


def parse_address(text: str, what: str) -> HostAddress:
    """An address; UsageError unless it is ``local`` or an ssh URL."""
    match = _URL.fullmatch(text)
    if text != LOCAL and (match is None or not 0 < int(match["port"] or 22) < 65536):
        raise UsageError(
            f"expected {what} as ssh://[USER@]HOST[:PORT] or {LOCAL}, found {printable(text)}",
            hint=f"try --{what} ssh://root@nas",
        )
    return HostAddress(text)
