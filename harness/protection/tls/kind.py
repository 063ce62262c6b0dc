"""TLS 1.3 within the connections of NVMe/TCP: the innermost protection, brought up by the transport itself.

A daemon of ktls-utils (tlshd) at each end negotiates, with a key of the session's own
(``storage.nvme.transport``). Then the two kernels encrypt. Whether they do is read from the sockets (``ss``,
the upper-layer protocol ``tls``), which also count what they carried.

TLS leaves addresses and ports as they are, so no policy can tell its segments from others. As long as it is
up, cleartext is kept out by the ends themselves: the target's portal refuses connections that do not begin
with TLS, and the initiator gives up one that does not get it. The captures keep all that begins like a PDU of
NVMe/TCP.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.hosts import Daemon, Host
from harness.hosts.journal import Resource
from harness.model import ENDS, IPV4, IPV6, End, Family
from harness.model.errors import RequirementError
from harness.network import links
from harness.network.links import LinkPath
from harness.protection import layer, overlay
from harness.protection.fail_closed import AllowInbound
from harness.protection.kind import Protection, ProtectionContext, Underlay
from harness.protection.layer import Carried, Due, EndCounts, Layer, Tally, of_ip, within_ip
from harness.storage.nvme import transport as nvme

MODULES = ("tls", "nvme_keyring")
NAME, TITLE = "tls", "TLS"
DAEMON = "tlshd"
PACKAGE = "ktls-utils"

FABRICS = "/dev/nvme-fabrics"
"""It lists the options that this kernel accepts (nvmf_dev_show() in drivers/nvme/host/fabrics.c)."""

TCP_PROTOCOL = 6
RECORD = b"\x17\x03\x03"
"""RFC 8446, section 5.2: application data, in the version that TLS 1.3 gives itself on the wire."""

START_DEADLINE_S = 60.0
"""On a machine with much else to do, tlshd was seen to take more than 20 s to start."""


# On the wire


@dataclass(frozen=True, kw_only=True)
class Clear:
    """How a PDU in clear begins (NVMe/TCP Transport Specification 1.0, section 3.6.1): its type, its header's
    length and, where that is always the same, its own."""

    kind: int
    header_bytes: int
    whole_bytes: int | None = None


CLEAR = (
    Clear(kind=0x00, header_bytes=128, whole_bytes=128),
    Clear(kind=0x01, header_bytes=128, whole_bytes=128),
    Clear(kind=0x04, header_bytes=72),
    Clear(kind=0x05, header_bytes=24, whole_bytes=24),
    Clear(kind=0x06, header_bytes=24),
    Clear(kind=0x07, header_bytes=24),
    Clear(kind=0x09, header_bytes=24, whole_bytes=24),
)
"""Connection request and response, command, response, data either way, and R2T."""


@dataclass(frozen=True, kw_only=True)
class TlsFrames(layer.Frames):
    """The segments of the portal, but for those that begin like a PDU in clear.

    Of those that begin with a record, some are sampled: they are numbered by their sequence number.
    """

    port: int
    family: Family = IPV4

    @property
    def own(self) -> str:
        # A filter that looks beyond the end of a segment is not true, and no PDU is that short.
        return f"(tcp port {self.port} and not ({self.clear}))"

    @property
    def clear(self) -> str:
        """The filter of what begins like a PDU in clear."""
        data = self._data
        found = []
        for pdu in CLEAR:
            words = [f"{self._tcp(data)} = {pdu.kind}", f"{self._tcp(f'{data} + 2')} = {pdu.header_bytes}"]
            if pdu.whole_bytes is None:
                words.append(f"{self._tcp(f'{data} + 7')} = 0")  # none has 16 MiB
            else:
                words.append(f"{self._tcp(f'{data} + 4', 4)} = {pdu.whole_bytes << 24:#x}")
            found.append(f"({' and '.join(words)})")
        return " or ".join(found)

    def sample(self, one_in: int) -> str:
        # By the identification field of the IP header, because sequence numbers grow in steps. IPv6 has none:
        # there by the checksum.
        begins = f"{self._tcp(self._data, 4)} & 0xffffff00 = {int.from_bytes(RECORD, 'big') << 8:#x}"
        varies = self._tcp(16, 2) if self.family == IPV6 else "ip[4:2]"
        return f"(tcp port {self.port} and {begins} and {varies} & {one_in - 1:#x} = 0)"

    @property
    def _data(self) -> str:
        """The offset of the data in a segment."""
        return f"(({self._tcp(12)} & 0xf0) >> 2)"

    def _tcp(self, at: str | int, size: int = 1) -> str:
        return within_ip(self.family, "tcp", at, size)

    def number(self, ethertype: int, packet: bytes) -> tuple[int, int] | None:
        found = of_ip(ethertype, packet, (self.family,))
        if found is None or found[0] != TCP_PROTOCOL:
            return None
        segment = found[1]
        source, to, sequence = struct.unpack_from("!HHI", segment)
        if self.port not in (source, to):
            return None
        data = segment[4 * (segment[12] >> 4) :]
        return (source, sequence) if data.startswith(RECORD) else None


# The sockets

_COUNT = re.compile(r"\b(bytes_sent|bytes_received|segs_out|segs_in):(\d+)")
_TLS = re.compile(r"\btcp-ulp-tls version: (\S+) cipher: (\S+) rxconf: (\S+) txconf: (\S+)")


@dataclass(frozen=True, kw_only=True)
class PortalSocket:
    """A connection of the portal, by ss(8), which leaves out what is zero. ``tls`` is the version and the
    cipher, if the kernel encrypts and decrypts."""

    sent: Carried
    received: Carried
    tls: tuple[str, str] | None


def sockets(text: str) -> list[PortalSocket]:
    """From ``ss -tinHO``."""
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        counts = {name: int(number) for name, number in _COUNT.findall(line)}
        reported = _TLS.search(line)
        found.append(
            PortalSocket(
                sent=Carried(packets=counts.get("segs_out", 0), bytes=counts.get("bytes_sent", 0)),
                received=Carried(packets=counts.get("segs_in", 0), bytes=counts.get("bytes_received", 0)),
                # Both ways, in software: tls_get_info() in net/tls/tls_main.c.
                tls=(reported[1], reported[2])
                if reported and (reported[3], reported[4]) == ("sw", "sw")
                else None,
            )
        )
    return found


@dataclass(frozen=True, kw_only=True)
class TlsLayer(Layer):
    """TLS between the ends of ``below``. ``agreed`` is filled in once there are connections. ``ended`` has
    each end's log of connections that are no more."""

    ended: Mapping[End, Path] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return TITLE

    def look(self) -> tuple[EndCounts, EndCounts]:
        near, far = (self._look(end) for end in ENDS)
        return near, far

    def _look(self, end: End) -> EndCounts:
        host, words = links.portal_connections(self.below)[end]
        (before,) = host.read_files(["/proc/net/dev"])
        found = sockets(host.run(["ss", "-tinHO", "state", "established", *words]).stdout)
        # Of these ss does not say whether they were encrypted: what was in clear is the captures' to see.
        ended = sockets(self.ended[end].read_text(encoding="utf-8")) if end in self.ended else []
        counted = [each for each in found if each.tls] + ended
        after, snmp = host.read_files(["/proc/net/dev", "/proc/net/snmp"])
        ciphers = {each.tls for each in found}
        if len(ciphers) == 1 and None not in ciphers:
            ((version, cipher),) = (each for each in ciphers if each is not None)
            self.agreed.update(algorithm=cipher, version=version)
        tally = Tally(
            out=_sum([each.sent for each in counted]),
            into=_sum([each.received for each in counted]),
            faults=tuple(_faults(end, found)),
        )
        return EndCounts(before=before, tally=tally, after=after, snmp=snmp)

    def due(self, _before: Tally, _after: Tally, _one_in: int) -> Due:
        """None: how many segments begin with a record depends on how the ends fill them."""
        return Due()

    def frame_bytes(self, carried: Carried, fragments: int, header_bytes: int) -> None:
        """Unknown: who receives a segment twice counts it once."""
        del carried, fragments, header_bytes


@contextlib.contextmanager
def _logged_as_they_end(path: LinkPath, raw: Path) -> Iterator[Mapping[End, Path]]:
    """Have each end's connections to the portal in a file once they have ended, with what they carried.

    Not of those that NVMe itself closes while they are up: its sockets have no linger time, so the kernel
    resets their counts before (__tcp_close(), tcp_disconnect() in net/ipv4/tcp.c).
    """
    logs = {end: raw / f"ended-connections-{end}.log" for end in ENDS}
    with contextlib.ExitStack() as stack:
        for end, (host, words) in links.portal_connections(path).items():
            log = logs[end]
            log.touch()
            # Line by line, because it is read while ss runs.
            argv = ["stdbuf", "--output=L", "ss", "-tinHOE", *words]
            stack.enter_context(host.daemon(argv, log=log, ready=lambda: True, deadline_s=START_DEADLINE_S))
        yield logs


def _sum(parts: list[Carried]) -> Carried:
    return Carried(packets=sum(part.packets for part in parts), bytes=sum(part.bytes for part in parts))


def _faults(end: End, found: list[PortalSocket]) -> Iterator[str]:
    if not found:
        yield f"expected connections to the portal with TLS at the {end}, found none (ss)"
    if clear := sum(each.tls is None for each in found):
        yield f"{clear} connections to the portal are without TLS at the {end} (ss)"
    if len({each.tls for each in found if each.tls}) > 1:
        yield f"the connections to the portal have different ciphers at the {end} (ss)"


# As a kind of protection


@dataclass(kw_only=True)
class TlsDaemons:
    """What all paths of a run share: daemons, but for those of network namespaces, which end with the first
    path there."""

    run: ProtectionContext
    _running: dict[str, Daemon] = field(default_factory=dict)

    def running(self, host: Host, stack: contextlib.ExitStack, logs: Path) -> Daemon:
        """The tlshd for connections of a host or network namespace, started if it does not run (any more)."""
        name = f"{DAEMON}-{host.netns or host.name}"
        running = self._running.get(name)
        if running is not None and not running.ended():
            return running
        if host.netns is None:
            stack, logs = self.run.shared, self.run.folder
        else:
            stack.callback(self._running.pop, name, None)
        config = self.run.private / f"{name}.conf"
        host.write_secret(config, "[debug]\nloglevel=0\ntls=0\nnl=0\n\n[authenticate]\nkeyrings=.nvme\n")
        log = logs / f"{DAEMON}-{host.name}.log"
        before = _starts(log)
        self._running[name] = stack.enter_context(
            host.daemon(
                [DAEMON, "--stderr", "--config", str(config)],
                log=log,
                ready=lambda: _starts(log) > before,
                deadline_s=START_DEADLINE_S,
            )
        )
        return self._running[name]


def _starts(log: Path) -> int:
    """How often tlshd has said in its log that it starts."""
    return log.read_bytes().count(b"ktls-utils") if log.exists() else 0


def require(path: LinkPath) -> None:
    """RequirementError if this is no path for TLS, or an end of it lacks something."""
    if path.is_shared:
        raise RequirementError(
            f"TLS is not possible yet over {path.profile.name}, an interface shared with other programs",
            hint="leave this link out with --protect tls, or use one of the lab's links",
        )
    if path.port != nvme.PORT:
        raise RequirementError(
            "only NVMe/TCP has TLS",
            hint="add --transport nvme-tcp",
        )
    hint = "harness kernel build --source linux-source-6.12, then --lab-kernel linux-source-6.12"
    for _, host, *_ in links.ends(path):
        overlay.require(host, MODULES, "TLS for NVMe/TCP (Linux 6.7 or later)", hint=hint)
        if host.run(["sh", "-c", f"command -v {DAEMON}"], check=False).status != 0:
            raise RequirementError(
                f"TLS for NVMe/TCP needs {DAEMON}, which is not installed on the {host.name}",
                hint=f"apt-get install {PACKAGE} (Debian 13 or later)",
            )
    # "instance=…,cntlid=…" without a controller, then the options that it knows.
    options = path.initiator.run(["cat", FABRICS], check=False).stdout
    if not re.search(r"(^|,)tls\b", options):
        raise RequirementError(
            f"TLS for NVMe/TCP needs CONFIG_NVME_TCP_TLS, which the {path.initiator.name}'s kernel lacks",
            hint=hint,
        )


@dataclass(frozen=True, kw_only=True)
class TlsDriver:
    """TLS in a run."""

    daemons: TlsDaemons

    def frames(self, underlay: Underlay) -> TlsFrames:
        return TlsFrames(port=underlay.below.port, family=underlay.below.ip)

    @contextlib.contextmanager
    def protect(self, underlay: Underlay) -> Iterator[TlsLayer]:
        """Let the portal's traffic pass once both ends can negotiate. The session brings TLS up."""
        below = underlay.below
        require(below)
        with contextlib.ExitStack() as stack:
            self.daemons.running(self.daemons.run.near(below), stack, underlay.raw)

            def of_target() -> Daemon:
                return self.daemons.running(below.target, stack, underlay.raw)

            of_target()

            def breaks() -> Mapping[str, tuple[Host, Resource]]:
                from harness.hosts.faults import Killed, Stopped  # here, because most runs break nothing

                daemon = of_target()  # it may be the successor of one that was killed
                return {
                    "handshake-daemon-killed": (below.target, Killed(DAEMON, daemon, of_target)),
                    "handshake-daemon-stopped": (below.target, Stopped(DAEMON, daemon)),
                }

            journal = self.daemons.run.journal
            stack.enter_context(overlay.passing(journal, below))
            for end, host, _, own, _ in links.ends(below):
                stack.enter_context(journal.hold(host, AllowInbound(end, own, below.port)))
            ended = stack.enter_context(_logged_as_they_end(below, underlay.raw))
            yield TlsLayer(below=below, ended=ended, breaks=breaks)


def _refuse() -> None:
    raise RequirementError(
        "TLS is not possible yet over real interfaces, which other programs share",
        hint="leave it out, or measure it in the lab",
    )


OFFERED = (
    Protection(
        name=NAME,
        kinds=lambda run: {NAME: TlsDriver(daemons=TlsDaemons(run=run))},
        modules=MODULES,
        trials=lambda _host, _role, _folder: ((TITLE, _refuse),),
        is_transports=True,
    ),
)
