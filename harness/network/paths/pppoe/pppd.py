"""pppd(8)'s log with ``debug``: how a client authenticated, and whether it succeeded.

The options that LCP agrees on are those of a Configure-Ack (RFC 1661, section 5.2). One of them is the
authentication protocol: PAP (RFC 1334), or CHAP (RFC 1994) with its algorithm.
"""

from __future__ import annotations

import re

_AGREED = re.compile(r"^sent \[LCP ConfAck [^\n]*<auth ([^>\n]+)>", re.MULTILINE)
_OUTCOME = re.compile(r"^(PAP|CHAP) authentication (succeeded|failed)", re.MULTILINE)


def authentication(log: str) -> tuple[str | None, bool | None]:
    """How a client authenticated in its last session, by its log, as pppd names it (``pap``, ``chap MD5``),
    and whether that succeeded. What the log does not say is None.
    """
    agreed = list(_AGREED.finditer(log))
    if not agreed:
        return None, None
    words = agreed[-1][1].strip()
    outcomes = (match for match in _OUTCOME.finditer(log, agreed[-1].start()))
    of_it = [match[2] == "succeeded" for match in outcomes if match[1].lower() == words.split()[0]]
    return words, of_it[-1] if of_it else None
