"""What is said of a path, and when: by the TCP of its ends, and by what protects it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from harness.hosts import Host, programs
from harness.model import End
from harness.network import links
from harness.network.links import LinkPath
from harness.protection.layer import Layer, Said
from harness.questions.fault.timers import TCP

_LINE = re.compile(r"^(\d+) (\d+) ([\d.]+)$", re.MULTILINE)
"""Of ``programs/tcp.py``."""


def ends(path: LinkPath, *, boots: bool) -> list[tuple[End, Host]]:
    """Those that are listened to: no target that ``boots`` meanwhile, which takes its programs and its clock
    along."""
    seen = [(end, host) for end, host, *_ in links.ends(path)]
    return seen[:1] if boots else seen


def ahead_ns(ends: Iterable[tuple[End, Host]]) -> dict[End, int]:
    """How far each end's times since 1970 are ahead of this process's monotonic ones."""
    return {end: host_ahead_ns(host, "unix_ns") for end, host in ends}


def host_ahead_ns(host: Host, clock: str) -> int:
    """The same of a clock of a host (``programs/clock.py``)."""
    before_ns = time.monotonic_ns()
    there_ns = msgspec.json.decode(host.call(__package__, "clock", clock), type=int)
    return there_ns - (before_ns + time.monotonic_ns()) // 2


@contextlib.contextmanager
def tcp_watched(ends: Iterable[tuple[End, Host]], port: int, folder: Path) -> Iterator[None]:
    """Have each end write down when its TCP sends again."""
    program = programs.source(__package__, "tcp")
    with contextlib.ExitStack() as stack:
        for end, host in ends:
            stack.enter_context(
                host.daemon(
                    [programs.PYTHON, "-I", "-S", "-c", program, str(port)],
                    log=folder / f"tcp-{end}.log",
                    output=_written(folder, end),
                    ready=lambda: True,
                    deadline_s=5,
                )
            )
        yield


def _written(folder: Path, end: str) -> Path:
    return folder / f"tcp-{end}.txt"


def _tcp_said(ends: Iterable[End], folder: Path) -> Iterator[Said]:
    for end in ends:
        for at_ns, count, after_s in _LINE.findall(_written(folder, end).read_text(encoding="ascii")):
            if int(count):
                yield Said(end, TCP, int(at_ns), f"retransmission {count} after {float(after_s):g} s")
            elif end == "initiator":
                yield Said(end, TCP, int(at_ns), "new connection")


def heard(layers: Iterable[Layer], folder: Path, ahead_ns: Mapping[End, int]) -> list[Said]:
    """All that was said at these ends, by this process's monotonic clock."""
    said = [*_tcp_said(ahead_ns, folder), *(said for layer in layers for said in layer.said())]
    return [each._replace(at_ns=each.at_ns - ahead_ns[each.end]) for each in said if each.end in ahead_ns]
