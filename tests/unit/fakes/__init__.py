"""Hosts that run nothing: they record every command, and act on a small model of two kernels and a disk.

The model knows what a run makes (``World.things``), refuses as the real programs do to remove what is
not there, and can be told to let the n-th step go wrong.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import json
import re
import shlex
import signal
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from harness.hosts import NamespaceHost, programs
from harness.hosts.runner import Completed
from harness.model.errors import CommandFailed, Interrupted
from harness.model.kinds import offered
from harness.protection import xfrm_listener
from harness.protection.capture import MOST_SPARSE, FrameReader, Seen
from harness.protection.ipsec.charon import Charon
from harness.protection.ipsec.layer import EspFrames
from harness.protection.xfrm_listener import ConnectAttempt, ListenerReport, XfrmListener
from tests.unit.fakes.answers import DONE, NO, Answer
from tests.unit.fakes.ipsec import Ipsec
from tests.unit.fakes.iscsi import Iscsi

_NETWORK = "ip tc ss ping iw ethtool iptables-legacy ovsdb-tool ovs-vsctl ovs-ofctl"
_FILES = "ls test dd mkdir install tee stat fallocate readlink rm"
SILENT = frozenset(f"daemon write sh lscpu modprobe unshare systemctl {_NETWORK} {_FILES}".split())
"""Programs that say nothing when they do what they are told, and leave nothing that a ``World`` knows."""

USERS = ("netns vpn", "policy 10.0.0.1/32", "target iqn.2020-01.org.example:mine", "backstore mine")
"""What somebody else has on the same kernels; a run must leave it as it is."""

IO_BYTES = 4_096_000
"""What every fake fio moves."""

LISTENER = programs.source("harness.protection", "xfrm_listener")
PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1)
READER = FrameReader(frames=EspFrames(addresses=(bytes(4), bytes(4))), port=3260)

PROC_NET_SNMP = """\
Ip: Forwarding DefaultTTL ReasmReqds ReasmOKs FragOKs FragCreates
Ip: 1 64 0 0 0 0
Tcp: ActiveOpens RetransSegs
Tcp: 4 17
"""


class Failure(enum.StrEnum):
    """How a step goes wrong."""

    STATUS = "status"
    """It has no effect and ends with an error."""
    HANG = "hang"
    """It takes effect, but does not end in time."""
    INTERRUPT = "interrupt"
    """SIGTERM comes before it."""


@dataclass(frozen=True)
class Command:
    """One thing a host was asked to do; ``argv`` begins with ``daemon`` or ``write`` for those."""

    host: str
    argv: tuple[str, ...]
    input: str | None = None

    def __str__(self) -> str:
        return f"{self.host}: {shlex.join(self.argv)}"


@dataclass(frozen=True, eq=False)
class FakeHost(NamespaceHost):
    """A host of a ``World``; in a journal it looks like the real one."""

    world: World = field(kw_only=True, repr=False)

    def kernel_messages(self) -> list[str]:
        messages, self.world.kernel_messages = self.world.kernel_messages, []
        return messages

    def _run(
        self, argv: Sequence[str], input: str | None, timeout_s: float, env: Mapping[str, str]
    ) -> Completed:
        del env
        status, stdout, stderr = self.world.run(self, Command(self.name, tuple(argv), input), timeout_s)
        return Completed(argv=tuple(argv), status=status, stdout=stdout, stderr=stderr)

    @contextlib.contextmanager
    def daemon(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        ready: Callable[[], bool],
        deadline_s: float,
        env: Mapping[str, str] | None = None,
        output: Path | None = None,
    ) -> Iterator[FakeDaemon]:
        del env
        # charon is started in a mount namespace, its program last.
        program = argv[-1] if argv[0] == "unshare" else argv[0]
        thing = f"daemon {Path(program).name} of {self.name} {self.netns or ''} {log}"
        self.world.run(self, Command(self.name, ("daemon", *argv)), deadline_s)
        self.world.make(thing)
        daemon = FakeDaemon(self, tuple(argv), log, output)
        try:
            if not ready():
                raise CommandFailed(f"waited {deadline_s:g} s in vain for {argv[0]}")
            yield daemon
        finally:
            self.world.remove(thing)
            if daemon in self.world.captures:
                self.world.captures.remove(daemon)
            if argv[0] == self.world.undying:
                raise CommandFailed(f"process {argv[0]} could not be killed")

    def clock_offset_ns(self) -> int:
        return 0

    def read_files(self, paths: Sequence[str]) -> list[str]:
        return [self.world.text_of(path) for path in paths]

    def write_secret(self, path: Path, text: str) -> None:
        self.world.run(self, Command(self.name, ("write", str(path))), 0)
        self.world.secret_files[str(path)] = text


class IdleDaemon:
    """A program that keeps running and does nothing."""

    def ended(self) -> bool:
        return False

    def signal(self, number: int) -> None:
        """It is ignored."""


class FakeDaemon:
    """A program that keeps running. tcpdump and an xfrm listener answer to signals, in their files."""

    def __init__(self, host: FakeHost, argv: tuple[str, ...], log: Path, output: Path | None) -> None:
        self.host, self.argv, self.log, self.output = host, argv, log, output or log
        self.has_ended, self.dropped = False, 0
        self.is_listener = LISTENER in argv
        if self.is_listener:
            self.output.write_bytes(b"")
            self._report()
        elif output is not None:
            output.write_bytes(PCAP_HEADER)
            log.write_text("tcpdump: listening on x\n", encoding="utf-8")
            if "ip src host " in argv[-1]:
                host.world.captures.append(self)

    def ended(self) -> bool:
        return self.has_ended

    def signal(self, number: int) -> None:
        if self.is_listener and number == signal.SIGUSR2:
            self._try_connect()
        elif self.is_listener:
            self._report()
        elif not self.has_ended:
            seen = f"{self.frames} packets captured, {self.frames} packets received by filter"
            with self.log.open("a", encoding="utf-8") as log:
                log.write(f"{seen}, {self.dropped} packets dropped by kernel\n")

    @property
    def frames(self) -> int:
        return READER.count(self.output.read_bytes()[len(PCAP_HEADER) :], Seen())[0]

    def capture(self, *frames: bytes) -> None:
        with self.output.open("ab") as stream:
            stream.write(b"".join(map(pcap_record, frames)))

    def _answer(self, **fields: object) -> None:
        with self.output.open("ab") as stream:
            stream.write(json.dumps(fields).encode() + b"\n")

    def _report(self) -> None:
        iface, reqid, *_ = self.argv[self.argv.index(LISTENER) + 1 :]
        counted = self.host.read_files(["/proc/net/dev"])[0].splitlines()
        (line,) = (line for line in counted if f"{iface}:" in line)
        states = self.host.world.ipsec.associations(self.host.netns, reqid)
        self._answer(before=line, states=states, after=line, snmp=PROC_NET_SNMP)

    def _try_connect(self) -> None:
        """A fail-closed policy stops it; otherwise the first segment leaves, and the answer of the other
        end."""
        _, _, own, own_port, peer, port = self.argv[self.argv.index(LISTENER) + 1 :]
        world, netns = self.host.world, self.host.netns
        fail_closed = [thing for thing in world.things if thing.startswith(f"policy {netns} src {own}/32")]
        if any(" proto 6 " in thing and " dir out" in thing for thing in fail_closed):
            self._answer(error="EPERM", blocked=1)
            return
        for captured in world.captures:
            if own in captured.argv[-1] and captured.host.world is world:
                captured.capture(tcp(int(own_port) or 40000, int(port), own, peer))
        self._answer(error="ECONNREFUSED", blocked=0)


class FakeXfrmListener(XfrmListener):
    """One that tells what it is given: the reports one after another, the last again and again."""

    def __init__(self, *reports: ListenerReport, attempts: Sequence[ConnectAttempt] = ()) -> None:
        self.reports, self.attempts = list(reports), list(attempts)

    def ask(self, what: int = xfrm_listener.REPORT) -> None:
        pass

    def report(self) -> ListenerReport:
        return self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]

    def attempted(self) -> ConnectAttempt:
        return self.attempts.pop(0)


@dataclass
class World:
    """What the hosts share. The ``fail_at``-th step (from 1) fails; ``broken`` steps always do."""

    fail_at: int = 0
    failure: Failure = Failure.STATUS
    broken: Callable[[Command], bool] = lambda _command: False
    undying: str = ""
    """A daemon that cannot be stopped."""
    answers: list[tuple[tuple[str, ...], Answer]] = field(default_factory=list)
    """(beginning of argv, answer), looked at before the model is asked."""

    silent: frozenset[str] = frozenset()
    """Programs of a test's own, which do nothing."""

    commands: list[Command] = field(default_factory=list)
    failed: Command | None = None
    things: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict.fromkeys(USERS, ()))
    """What exists, and the network namespaces with which it goes."""
    history: list[tuple[str, str]] = field(default_factory=list)
    """("+" or "-", thing), in order."""
    secret_files: dict[str, str] = field(default_factory=dict)
    vici_messages: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """What each host's charons were told: host, command, message."""
    captures: list[FakeDaemon] = field(default_factory=list)
    moved_bytes: int = 0
    protected_bytes: int = 0
    """Of every ESP state that there is."""
    samples: int = 0
    """How many packets of each have had a number that is sampled."""
    kernel_messages: list[str] = field(default_factory=list)
    """What the kernel will have said when it is asked next."""
    _steps: int = 0

    def __post_init__(self) -> None:
        self.ipsec, self.iscsi = Ipsec(self), Iscsi(self)
        self.more = [kind(self) for kind in offered(__name__)]

    def host(self, name: str, netns: str | None = None) -> FakeHost:
        """In place of ``NamespaceHost``."""
        return FakeHost(name, netns, world=self)

    @property
    def left(self) -> set[str]:
        """What exists and is not somebody else's."""
        return set(self.things) - set(USERS)

    def make(self, thing: str, *netns: str) -> None:
        assert thing not in self.things, f"{thing} was made twice"
        self.things[thing] = netns
        self.history.append(("+", thing))

    def remove(self, thing: str) -> None:
        del self.things[thing]
        self.history.append(("-", thing))

    def ask(
        self, charon: Charon, command: str, message: dict[str, Any] | None = None, *, within_s: float = 0
    ) -> None:
        """In place of ``Charon.ask``."""
        host = charon.host
        assert isinstance(host, FakeHost)
        text = json.dumps(message or {}, default=bytes.decode)
        self.vici_messages.append((host.name, command, json.loads(text)))
        try:
            status, _, said = self.run(host, Command(host.name, ("vici", command), text), within_s)
        except OSError as error:
            raise CommandFailed(str(error)) from error
        if status:
            raise CommandFailed(f"charon on the {host.name} did not carry out `{command}`: {said}")

    def run(self, host: FakeHost, command: Command, timeout_s: float) -> Answer:
        """Carry out a step, or fail it. ``runner.run`` raises CommandFailed if a command hangs."""
        self.commands.append(command)
        counts = not (self.failure is Failure.STATUS and _asks(command.argv))
        self._steps += counts
        due = counts and self._steps == self.fail_at
        if due:
            self.failed = command
        if due and self.failure is Failure.INTERRUPT:
            raise Interrupted
        if self.broken(command) or (due and self.failure is Failure.STATUS):
            if command.argv[0] == "write":
                raise OSError(28, "No space left on device")
            if command.argv[0] == "daemon":
                raise CommandFailed(f"`{shlex.join(command.argv[1:])}` ended while it started")
            return 1, "", "it was made to fail"
        answer = self._answer(host, command)
        if due and command.argv[0] not in ("write", "daemon"):
            raise CommandFailed(f"`{shlex.join(command.argv)}` did not end within {timeout_s:g} s")
        return answer

    def _answer(self, host: FakeHost, command: Command) -> Answer:
        if command.argv[-2:] == ("-batch", "-") and command.argv[0] == "ip":
            return self._batch(host, command)
        answer = next((a for start, a in self.answers if command.argv[: len(start)] == start), None)
        return answer or self._act(host.netns, command.argv, command.input or "")

    def _batch(self, host: FakeHost, batch: Command) -> Answer:
        """Carry out each line as a command of its own, up to the first that fails, or all with ``-force``."""
        status, said = 0, ""
        for line in (batch.input or "").splitlines():
            command = Command(host.name, ("ip", *line.split()))
            self.commands.append(command)
            broken = (1, "", "it was made to fail")
            failed, _, why = broken if self.broken(command) else self._answer(host, command)
            status, said = failed or status, said + why
            if failed and "-force" not in batch.argv:
                break
        return status, "", said

    @property
    def said(self) -> list[str]:
        """All commands; of a batch its lines."""
        return [" ".join(command.argv) for command in self.commands if "-batch" not in command.argv]

    def _act(self, netns: str | None, argv: tuple[str, ...], text: str) -> Answer:
        match argv:
            case ["ls", "/sys/module"]:
                return 0, "brd\n" if "module brd" in self.things else "", ""
            case ["ls", "/sys/kernel/config"]:
                return 0, "target\nnvmet\n", ""
            case ["mount", "-t", "configfs", *_]:
                pass
            case ["modprobe", "--first-time", "brd", *_]:
                self.make("module brd")
            case ["modprobe", "-r", "brd"]:
                if any(thing.startswith("backstore harness") for thing in self.things):
                    return 1, "", "modprobe: FATAL: Module brd is in use."
                return self.remove_if_there("module brd", DONE)
            case ["ip", "netns", "add", name]:
                self.make(f"netns {name}")
            case ["ip", "netns", "list"]:
                names = [thing.split()[1] for thing in self.things if thing.startswith("netns ")]
                return 0, "".join(f"{name} (id: 0)\n" for name in names), ""
            case ["ip", "netns", "del", name]:
                for thing in [thing for thing, ends in self.things.items() if name in ends]:
                    self.remove(thing)
                missing = f'Cannot remove namespace file "/run/netns/{name}": No such file or directory'
                return self.remove_if_there(f"netns {name}", (1, "", missing))
            case ["ip", "link", "add", iface, *words, "type", "ifb"]:
                self.make(f"link {iface}", *filter(None, [netns]))
            case ["ip", "link", "add", iface, *words] if netns is None:
                self.make(f"link {iface}", words[words.index("netns") + 1])
            case ["ip", "link", "show", "dev", iface]:
                return DONE if f"link {iface}" in self.things else NO
            case ["ip", "link", "del", "dev", iface]:
                return self.remove_if_there(f"link {iface}", (1, "", "Cannot find device"))
            case ["fio", *_]:
                return self._fio(text)
            case _:
                kinds = (self.ipsec, self.iscsi, *self.more)
                answers = (kind.act(netns, argv, text) for kind in kinds)
                answer = next((answer for answer in answers if answer is not None), None)
                known = argv[0] in SILENT | self.silent
                assert answer or known, f"give a file below tests/unit/fakes to {shlex.join(argv)}"
                return answer or DONE
        return DONE

    def remove_if_there(self, thing: str, absent: Answer) -> Answer:
        if thing not in self.things:
            return absent
        self.remove(thing)
        return DONE

    def _fio(self, job: str) -> Answer:
        self.moved_bytes += 2 * IO_BYTES
        self.protected_bytes += 2 * IO_BYTES
        self.samples += 1
        for captured in self.captures:
            self._be_captured(captured)
        return 0, fio_output(write="write" in job), ""

    def _be_captured(self, captured: FakeDaemon) -> None:
        """What a capture sees of a cell: ESP of the associations that there are, or the portal's segments."""
        own, peer = re.findall(r"host ([\d.]+)", captured.argv[-1])[:2]
        if captured.argv[-1].startswith("not "):
            own, peer = peer, own
        if "tcpflags" in captured.argv[-1]:
            (port,) = set(re.findall(r"tcp port (\d+)", captured.argv[-1]))
            captured.capture(tcp(40000, int(port), own, peer))
        for thing in self.things:
            if thing.startswith(f"state {captured.host.netns} {own} {peer} "):
                spi = self.ipsec.spis[" ".join(thing.split()[2:])]
                (mask,) = re.findall(r"ip\[24:4\] & (0x[0-9a-f]+)", captured.argv[-1])
                last = MOST_SPARSE * self.samples
                numbers = (n for n in range(last - MOST_SPARSE + 1, last + 1) if not n & int(mask, 16))
                captured.capture(*(esp(spi, number, own, peer) for number in numbers))

    def text_of(self, path: str) -> str:
        """A small file, as ``Host.read_files`` gives it."""
        if path in self.secret_files:
            return self.secret_files[path]
        if path == "/proc/net/dev":
            links = [thing.split()[1] for thing in self.things if thing.startswith("link ")]
            ends = [name.replace("i", "t") for name in links]
            moved = f"{self.moved_bytes} {MOST_SPARSE * self.samples}{' 0' * 6}"
            return "".join(f"{name}: {moved} {moved}\n" for name in (*links, *ends))
        if path == "/proc/crypto":
            return "name         : rfc4106(gcm(aes))\ndriver       : rfc4106-gcm-aesni\npriority     : 400\n"
        for kind in (*self.more, self.iscsi):
            if (text := kind.text_of(path)) is not None:
                return str(text)
        return "262144\n" if path.endswith("/size") else ""


def _asks(argv: tuple[str, ...]) -> bool:
    """Whether an exit status other than 0 is an answer and no error."""
    return (
        argv[0] in ("test", "mountpoint")
        or argv == ("vici", "stats")
        or argv[:3] == ("ip", "link", "show")
        or (argv[:2] == ("sh", "-c") and argv[2].startswith(("test", "grep")))
    )


def ethernet(ethertype: int, payload: bytes) -> bytes:
    return bytes(12) + struct.pack("!H", ethertype) + payload


def vlan(tag: int, frame: bytes, ethertype: int = 0x8100) -> bytes:
    """The frame with a VLAN tag before its type (IEEE Std 802.1Q)."""
    return frame[:12] + struct.pack("!HH", ethertype, tag) + frame[12:]


def ipv4(
    protocol: int, payload: bytes, source: str, destination: str, *, fragment: int = 0, options: bytes = b""
) -> bytes:
    """An Ethernet frame with an IPv4 header (RFC 791) that names ``protocol``."""
    words = (0x45 + len(options) // 4, 0, 20 + len(options) + len(payload), 0, fragment, 64, protocol, 0)
    ends = _address(source) + _address(destination)
    return ethernet(0x0800, struct.pack("!BBHHHBBH", *words) + ends + options + payload)


@functools.cache
def _address(text: str) -> bytes:
    return IPv4Address(text).packed


def ipv6(next_header: int, payload: bytes) -> bytes:
    header = struct.pack("!IHBB", 6 << 28, len(payload), next_header, 255)
    return ethernet(0x86DD, header + bytes(32) + payload)


def tcp(sport: int, dport: int, source: str, destination: str, *, fragment: int = 0) -> bytes:
    return ipv4(6, struct.pack("!HH", sport, dport) + bytes(28), source, destination, fragment=fragment)


def udp(sport: int, dport: int, source: str, destination: str) -> bytes:
    return ipv4(17, struct.pack("!HHHH", sport, dport, 28, 0) + bytes(20), source, destination)


def esp(spi: int, number: int, source: str, destination: str) -> bytes:
    return ipv4(50, struct.pack("!II", spi, number) + bytes(40), source, destination)


def arp() -> bytes:
    return ethernet(0x0806, bytes(28))


def pcap_record(captured: bytes, *, order: str = "<") -> bytes:
    """A record of a pcap file: time, length as captured, length on the wire (1514 bytes)."""
    return struct.pack(f"{order}IIII", 1_700_000_000, 0, len(captured), 1514) + captured


def fio_output(*, write: bool) -> str:
    """fio 3.33's JSON of a job that moved ``IO_BYTES`` in a second."""
    kib, each = IO_BYTES // 1024, {"runtime": 1000, "total_ios": 1000, "iops": 1000.0}
    busy: dict[str, Any] = {"io_bytes": IO_BYTES, "io_kbytes": kib, "bw_bytes": IO_BYTES, "bw": kib, **each}
    idle = dict.fromkeys(busy, 0) | {"iops": 0.0}
    busy["lat_ns"] = {"min": 1_900_000, "max": 2_100_000, "mean": 2_000_000.0, "stddev": 1.0}
    read, written = (idle, busy) if write else (busy, idle)
    job = {"jobname": "job", "error": 0, "read": read, "write": written}
    return json.dumps({"fio version": "fio-3.33", "jobs": [job]})
