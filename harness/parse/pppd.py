"""pppd(8)'s log with ``debug``: how a client authenticated, and whether it succeeded.

The options that LCP agrees on are those of a Configure-Ack (RFC 1661, section 5.2). One of them is the
authentication protocol: PAP (RFC 1334), or CHAP (RFC 1994) with its algorithm.
"""

from __future__ import annotations

import re

import msgspec

_AGREED = re.compile(r"^sent \[LCP ConfAck [^\n]*<auth ([^>\n]+)>", re.MULTILINE)
_OUTCOME = re.compile(r"^(PAP|CHAP) authentication (succeeded|failed)", re.MULTILINE)


class Authentication(msgspec.Struct, frozen=True):
    """For the last session in a log. ``agreed``: as pppd names it, ``pap`` or ``chap MD5``.

    ``succeeded`` is that of the protocol that was agreed on. What the log does not say is None.
    """

    agreed: str | None
    succeeded: bool | None

    @property
    def protocol(self) -> str | None:
        """``pap`` or ``chap``."""
        return None if self.agreed is None else self.agreed.split()[0]


def authentication(log: str) -> Authentication:
    """The client's last attempted session, by its log."""
    agreed = [(match.start(), match[1].strip()) for match in _AGREED.finditer(log)]
    if not agreed:
        return Authentication(None, None)
    began, words = agreed[-1]
    outcomes = [
        match[2] == "succeeded"
        for match in _OUTCOME.finditer(log, began)
        if match[1].lower() == words.split()[0]
    ]
    return Authentication(words, outcomes[-1] if outcomes else None)
