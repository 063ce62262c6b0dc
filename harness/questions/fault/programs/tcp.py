"""When TCP sends again what was not acknowledged, by the kernel's own list of its sockets (/proc/net/tcp).

It runs at an end of a path until it is ended; its argument is the portal's port. It prints the time of the
end's clock, in ns since 1970, how often TCP has now sent without an answer, and after which time in s; for a
new connection both are 0. The kernel says of a socket when its timer is due, and how often it ran out: if it
has run out when the list is read again, or nothing is unanswered any more, it did so when it was due.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILES = ("/proc/net/tcp", "/proc/net/tcp6")
INTERVAL_S = 0.1
CLOCK_NS = 10**7
"""Such files count in 1/100 s, whatever HZ is (USER_HZ, include/asm-generic/param.h)."""

RETRANSMISSION = "01"
"""``icsk_pending`` (get_tcp4_sock() in net/ipv4/tcp_ipv4.c)."""


class Socket(NamedTuple):
    """Sent ``again`` so often, and when the next time is due; None if nothing is unanswered."""

    again: int
    due_ns: int | None
    timeout_ns: int


class SentAgain(NamedTuple):
    at_ns: int
    again: int
    after_s: float


def sockets(text: str, port: int, now_ns: int) -> dict[tuple[str, str], Socket]:
    """Those from or to a port, by their ends."""
    wanted, found = f":{port:04X}", {}
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 13 or not (words[1].endswith(wanted) or words[2].endswith(wanted)):
            continue
        timer, _, when = words[5].partition(":")
        due_ns = now_ns + CLOCK_NS * int(when, 16) if timer == RETRANSMISSION else None
        found[words[1], words[2]] = Socket(int(words[6], 16), due_ns, CLOCK_NS * int(words[12]))
    return found


def sent_again(before: Socket, after: Socket, now_ns: int) -> SentAgain | None:
    """What happened between two looks at a socket."""
    if before.due_ns is None:
        return None
    # What could not even leave its own host is tried again sooner, and not counted (tcp_retransmit_timer()).
    is_due_later = after.due_ns is None or after.due_ns > now_ns + INTERVAL_S * 1e9 / 2
    has_run_out = before.again and before.due_ns <= now_ns and is_due_later
    if after.again > before.again or has_run_out:
        again = before.again + (after.again != before.again)
        return SentAgain(min(before.due_ns, now_ns), max(after.again, again), before.timeout_ns / 1e9)
    return None


def watch(port: int) -> Iterator[SentAgain]:
    known: dict[tuple[str, str], Socket] = {}
    sent_ns: dict[tuple[str, str], int] = {}
    is_first = True
    while True:
        now_ns, text = time.time_ns(), ""
        for name in FILES:
            with contextlib.suppress(FileNotFoundError):  # a kernel may have no IPv6
                text += Path(name).read_text()
        found = sockets(text, port, now_ns)
        for ends, socket in found.items():
            if ends not in known:
                event = None if is_first else SentAgain(now_ns, 0, 0.0)
            else:
                event = sent_again(known[ends], socket, now_ns)
            if event is not None:
                since_s = (event.at_ns - sent_ns.get(ends, 0)) / 1e9
                sent_ns[ends] = event.at_ns
                yield event._replace(after_s=round(min(event.after_s, since_s), 2))
        known, is_first = found, False
        time.sleep(INTERVAL_S)


if __name__ == "__main__":
    for each in watch(int(sys.argv[1])):
        sys.stdout.write(" ".join(map(str, each)) + "\n")
        sys.stdout.flush()
