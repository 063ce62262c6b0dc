"""What all probes share: how a tool's output is kept, and how it becomes figures or a reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.hosts.runner import Completed
from harness.model import IPV6, Status
from harness.model.errors import RequirementError
from harness.model.probing import Figures
from harness.network.links import LinkPath
from harness.observe import counters
from harness.protection.layer import Layer

UNPROTECTED = "only the portal's ports are protected on a real link, so a probe would show it without IPsec"


@dataclass(frozen=True, kw_only=True)
class ProbedPath:
    """A path to probe, the folder for raw outputs, and the journal for temporary changes.

    A protected path has ``layers``, which report what they carried.
    """

    path: LinkPath
    raw: Path
    journal: Journal
    layers: tuple[Layer, ...] = ()


@dataclass(kw_only=True)
class ProbeOutcome:
    """The result of a probe. ``reasons`` make it invalid; ``moved_bytes`` of payload have crossed the
    path."""

    figures: Figures | None = None
    status: Status = Status.OK
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    moved_bytes: int = 0

    def refuse(self, *reasons: str) -> ProbeOutcome:
        self.reasons += reasons
        return self


PACKAGES = {"ping": "iputils-ping", "iperf3": "iperf3", "hping3": "hping3", "cc": "gcc libc6-dev"}
"""The Debian packages of the programs."""


def require(host: Host, program: str) -> None:
    """RequirementError if a host does not have the program, with the command that installs it."""
    if host.run(["sh", "-c", 'command -v "$0"', program], check=False).status != 0:
        raise RequirementError(
            f"the {host.name} has no program {program}",
            hint=f"install it with: apt-get install --no-install-recommends {PACKAGES[program]}",
        )


def counted(host: Host, iface: str) -> counters.InterfaceCounters:
    """What the interface has counted so far: nothing if there is none."""
    return counters.traffic_of(host).get(iface, counters.NOTHING)


def listens(protocol: str, path: LinkPath, port: int) -> bool:
    """Whether a socket of the target waits at a port."""
    (table,) = path.target.read_files([f"/proc/net/{protocol}{'6' if path.ip == IPV6 else ''}"])
    # proc(5): "sl: ADDRESS:PORT ADDRESS:PORT ST"; 0A is LISTEN, which UDP does not have.
    rows = (line.split() for line in table.splitlines()[1:])
    at_port = (row[3] for row in rows if len(row) > 3 and row[1].endswith(f":{port:04X}"))
    return any(state == "0A" or protocol == "udp" for state in at_port)


def keep(raw: Path, name: str, done: Completed) -> str:
    """Keep what a tool printed, each stream in a file of its own; returns both together."""
    raw.mkdir(parents=True, exist_ok=True)
    for suffix, text in (("txt", done.stdout), ("stderr", done.stderr)):
        if text:
            (raw / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    return done.stdout + done.stderr
