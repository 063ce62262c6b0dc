"""Shared by programs that watch an end of a path: they answer signals as long as the path is up, and start no
process for that."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

Tell = Callable[[], Mapping[str, Any]]


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def lines_of(path: str, beginning: str) -> str:
    """The lines of a file that begin so, apart from blanks."""
    with open(path) as file:  # noqa: PTH123
        return "".join(line for line in file if line.lstrip().startswith(beginning))


def report(interface: str, counted: Tell, *, is_ipv6: bool) -> dict[str, Any]:
    """What protection and ``interface`` have counted by now.

    The interface before and after: what passes between the two readings is in what the protection counted. A
    proof takes ``after`` where a cell begins, ``before`` where it ends (protection/proof.py).
    """
    answer = {"before": lines_of("/proc/net/dev", interface + ":"), **counted()}
    answer["after"] = lines_of("/proc/net/dev", interface + ":")
    snmp = lines_of("/proc/net/snmp", "Ip:") + lines_of("/proc/net/snmp", "Tcp:")
    answer["snmp"] = snmp + (lines_of("/proc/net/snmp6", "Ip6") if is_ipv6 else "") + dropped()
    return answer


def dropped() -> str:
    """What IPsec policies have not let out, by cause; nothing from a kernel that does not count it."""
    try:
        return lines_of("/proc/net/xfrm_stat", "XfrmOut")
    except FileNotFoundError:  # CONFIG_XFRM_STATISTICS
        return ""


def watch(
    reported: Tell,
    others: Mapping[int, Tell] | None = None,
    *,
    ear: tuple[socket.socket, Callable[[], None]] | None = None,
) -> None:
    """Print a line of JSON for each signal: what is ``reported`` on SIGUSR1, and ``others`` on theirs. The
    first one comes unasked. ``ear`` is what else wakes it, and what to do then. If what it watches is gone,
    it ends with a line on standard error."""
    answers: dict[int, Tell] = {signal.SIGUSR1: reported, **(others or {})}
    asked, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in answers:
        signal.signal(number, lambda _number, _frame: None)
    questions = bytes([signal.SIGUSR1])
    while True:
        for question in questions:
            try:
                answer = answers[question]()
            except OSError as error:  # what it watches is gone, and this is the reason that a cell gets
                sys.exit(str(error))
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        readable, _, _ = select.select([asked, *([ear[0].fileno()] if ear else [])], [], [])
        if ear:
            ear[1]()
        questions = os.read(asked, 1 << 12) if asked in readable else b""
