"""TLS for NVMe/TCP: what a capture takes for cleartext, what the sockets tell, and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from harness.analysis import theory
from harness.analysis.wire import framing_of
from harness.analysis.wire.nvme import NvmeDialogue, in_records
from harness.hosts.journal import Journal
from harness.model import IPV6, Column, LinkProfile
from harness.model.errors import CommandFailed, RequirementError, UsageError
from harness.model.protections import NESTING, split_stack
from harness.network.links import LinkPath
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.protection import capture
from harness.protection.capture import FrameReader, Seen
from harness.protection.fail_closed import AllowInbound
from harness.protection.kind import Underlay
from harness.protection.layer import Carried, Due
from harness.protection.programs import xfrm_listener as program
from harness.protection.tls import kind as tls
from harness.storage.nvme import transport as nvme
from harness.testbeds.lab.kernels import kernel, source
from harness.testbeds.requirements import Asked
from tests.unit.fakes import FakeHost, World
from tests.unit.fakes.paths import link_path
from tests.unit.storage.nvme.test_nvme import up, wanted
from tests.unit.test_ipv6 import frame, require_filter, seen, tcp
from tests.unit.testbeds.test_kernel import OTHER, RECIPE, built
from tests.unit.testbeds.test_selftest import problems, tried

PORT = nvme.PORT
FRAMES = tls.TlsFrames(port=PORT)


def path(world: World, **changes: Any) -> LinkPath:
    return link_path(world, 7, **{"port": PORT, **changes})


def segment(data: bytes, *, port: int = PORT, options: bytes = b"", number: int = 0) -> bytes:
    """An Ethernet frame with a TCP segment from the initiator to the target."""
    tcp = struct.pack("!HHIIBBHHH", 40000, port, 1000, 2000, (5 + len(options) // 4) << 4, 0x18, 0, 0, 0)
    total = 20 + len(tcp) + len(options) + len(data)
    addresses = bytes((198, 18, 7, 1, 198, 18, 7, 2))
    ip = struct.pack("!BBHHHBBH", 0x45, 0, total, number, 0x4000, 64, 6, 0) + addresses
    return bytes(12) + b"\x08\x00" + ip + tcp + options + data


def pdu(kind: int, header_bytes: int, whole_bytes: int) -> bytes:
    """The first bytes of an NVMe/TCP PDU, with more behind them."""
    return struct.pack("<BBBBI", kind, 0, header_bytes, 0, whole_bytes).ljust(64, b"\xee")


TIMES = bytes.fromhex("0101080a0000000100000002")
CLEAR = {
    "connection request": pdu(0, 128, 128),
    "connection response": pdu(1, 128, 128),
    "command": pdu(4, 72, 72),
    "command with data": pdu(4, 72, 72 + 4096),
    "response": pdu(5, 24, 24),
    "data to the target": pdu(6, 24, 24 + 262144),
    "data to the initiator": pdu(7, 24, 24 + 4096),
    "ready to transfer": pdu(9, 24, 24),
}
RECORD = b"\x17\x03\x03\x10\x11".ljust(64, b"\xc5")
SEALED = {
    "a record": RECORD,
    "client hello": b"\x16\x03\x01\x02\x00\x01".ljust(64, b"\0"),
    "the middle of a record": bytes(range(7, 71)),
    "no data": b"",
    "data too short to be told": b"\x04\x00\x48",
}


def records(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in frames)


def kept(frames: list[bytes], expression: str, folder: Path) -> bytes:
    """The records of those of these frames that tcpdump keeps."""
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)
    (folder / "given.pcap").write_bytes(header + records(frames))
    argv = ["tcpdump", "-n", "-r", str(folder / "given.pcap"), "-w", "-", expression]
    return subprocess.run(argv, check=True, capture_output=True).stdout[capture.PCAP_HEADER_BYTES :]


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="needs tcpdump")
def test_the_filter_keeps_every_pdu_in_clear_and_of_the_portal_s_other_segments_some(tmp_path: Path) -> None:
    made = path(World())
    for options in (b"", TIMES):
        in_clear = [segment(data, options=options, number=1) for data in CLEAR.values()]
        sealed = [segment(data, options=options, number=1) for data in SEALED.values()]
        others = [segment(RECORD, port=22), bytes(12) + b"\x08\x06" + bytes(28)]
        wanted = capture.expression(made, "initiator", FRAMES, protected=True, one_in=2)
        assert kept([*sealed, *in_clear, *others], wanted, tmp_path) == records([*in_clear, *others])
    given = [segment(RECORD, options=TIMES, number=number) for number in range(8)]
    wanted = capture.expression(made, "initiator", FRAMES, protected=True, one_in=4)
    assert kept(given, wanted, tmp_path) == records([given[0], given[4]]), "they begin with a record"


def test_a_frame_that_was_kept_is_reported() -> None:
    sealed, clear = Seen(numbers={40000: {1000}}), Seen(cleartext=1, clear_bytes=100)
    rows = [(RECORD, PORT, sealed), (RECORD, 22, Seen(other=1, clear_bytes=100))]
    for data, port, expected in (*rows, *((data, PORT, clear) for data in CLEAR.values())):
        seen, frame = Seen(), segment(data, port=port, options=TIMES)[: capture.SNAP_BYTES]
        FrameReader(frames=FRAMES, port=PORT).tell(frame, 100, seen)
        assert seen == expected


NOBODY = ("127.0.0.1", 0)


def test_what_is_sent_on_purpose_begins_like_a_connection_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(NOBODY) as free:
        portal = free.getsockname()
    with ThreadPoolExecutor() as pool:
        listening = pool.submit(program.converse, portal, NOBODY)
        with program.connected(NOBODY, portal) as connection:
            connection.sendall(bytes(128))
            assert connection.recv(8, socket.MSG_WAITALL) == CLEAR["connection response"][:8]
            connection.recv(120, socket.MSG_WAITALL)
        assert listening.result() == {"error": "", "blocked": None}
        with socket.create_server(NOBODY) as server:
            talking = pool.submit(program.converse, NOBODY, server.getsockname())
            with server.accept()[0] as other:
                assert other.recv(8, socket.MSG_WAITALL) == CLEAR["connection request"][:8]
                other.recv(120, socket.MSG_WAITALL)
                other.sendall(bytes(128))
            assert talking.result() == {"error": "", "blocked": None}
        # Both ends may begin at once.
        talking = pool.submit(program.converse, NOBODY, portal)
        assert program.converse(portal, NOBODY)["error"] == talking.result()["error"] == ""
    monkeypatch.setattr(program, "DIALOGUE_S", 0.05)
    assert program.converse(NOBODY, portal)["error"].startswith("ConnectionRefusedError")


SS = (
    "0 0 198.18.7.1:40000 198.18.7.2:4420 ts sack cubic wscale:7,7 rto:210 rtt:0.2/0.1 mss:1448 cwnd:10 "
    "bytes_sent:7304 bytes_acked:7305 bytes_received:44012 segs_out:61 segs_in:59 data_segs_out:30 "
    "data_segs_in:31 send 1bps{} rcv_space:14600"
)
TLS_BOTH_WAYS = " tcp-ulp-tls version: 1.3 cipher: aes-gcm-128 rxconf: sw txconf: sw"
SENT, RECEIVED = Carried(packets=61, bytes=7304), Carried(packets=59, bytes=44012)
SOCKET = tls.PortalSocket(sent=SENT, received=RECEIVED, tls=("1.3", "aes-gcm-128"))


def test_sockets_tell_whether_they_encrypt() -> None:
    one_way = TLS_BOTH_WAYS.replace("txconf: sw", "txconf: none")
    lines = [SS.format(state) for state in (TLS_BOTH_WAYS, "", one_way)]
    lines += [SS.replace("bytes_sent:7304 ", "").format(TLS_BOTH_WAYS), ""]
    without = dataclasses.replace(SOCKET, tls=None)
    fresh = dataclasses.replace(SOCKET, sent=Carried(packets=61, bytes=0))
    assert tls.sockets("\n".join(lines)) == [SOCKET, without, without, fresh]


def look(near: str, far: str) -> tls.TlsLayer:
    worlds = [World(answers=[(("ss",), (0, text, ""))]) for text in (near, far)]
    return tls.TlsLayer(below=path(worlds[0], target=worlds[1].host("target", "far")))


def test_a_layer_counts_what_its_connections_carried_and_one_without_tls_is_a_fault() -> None:
    line = SS.format(TLS_BOTH_WAYS) + "\n"
    layer = look(line * 2, line)
    near, far = (each.tally for each in layer.look())
    assert (near.out, near.into) == (Carried(packets=122, bytes=14608), Carried(packets=118, bytes=88024))
    assert far.out == SOCKET.sent and near.faults == far.faults == ()
    assert layer.agreed == {"algorithm": "aes-gcm-128", "version": "1.3"}
    assert layer.due(near, near, 1) == Due()
    layer = look(line + SS.format(""), "")
    near, far = (each.tally for each in layer.look())
    assert near.out == SOCKET.sent
    assert near.faults == ("1 connections to the portal are without TLS at the initiator (ss)",)
    assert far.faults == ("expected connections to the portal with TLS at the target, found none (ss)",)
    assert layer.agreed == {}


def test_what_connections_carried_that_are_no_more_counts(tmp_path: Path) -> None:
    """ss says of them what they carried, but not whether they were encrypted."""
    log = tmp_path / "ended.log"
    layer = dataclasses.replace(look(SS.format(TLS_BOTH_WAYS), ""), ended={"initiator": log, "target": log})
    log.touch()
    before, _ = (each.tally for each in layer.look())
    log.write_text(SS.format("") + "\n" + SS.format("") + "\n", encoding="utf-8")
    after, far = (each.tally for each in layer.look())
    assert before.out.grown(after.out) == Carried(packets=122, bytes=14608) and not after.faults
    assert far.into == Carried(packets=118, bytes=88024)


def refused(world: World, **changed: Any) -> tuple[str, str]:
    with pytest.raises(RequirementError) as error:
        tls.require(path(world, **changed))
    return error.value.message, error.value.hint or ""


def test_what_is_missing_is_named_with_what_brings_it() -> None:
    old, hint = refused(World(answers=[(("modprobe", "nvme_keyring"), (1, "", "not found"))]))
    assert old.startswith("TLS for NVMe/TCP (Linux 6.7 or later) needs the module nvme_keyring, which")
    assert "harness kernel build --source linux-source-6.12" in hint
    without, hint = refused(World(answers=[(("sh", "-c", "command -v tlshd"), (127, "", ""))]))
    assert "needs tlshd, which is not installed on the initiator" in without and "ktls-utils" in hint
    options = "instance=-1,cntlid=-1,transport=%s,traddr=%s,keyring=%d,tls_key=%d,dhchap_ctrl_secret=%s"
    plain, _ = refused(World(answers=[(("cat", tls.FABRICS), (0, options, ""))]))
    assert "needs CONFIG_NVME_TCP_TLS" in plain
    tls.require(path(World(answers=[(("cat", tls.FABRICS), (0, f"{options},tls", ""))])))
    # Only connections of NVMe over a link of the run's own can have it.
    assert "only NVMe/TCP has TLS" in refused(World(), port=3260)[0]
    assert "an interface shared" in refused(World(), is_shared=True)[0]


def test_it_is_innermost_and_never_with_ipsec() -> None:
    outer = tuple(names[0] for names in NESTING[:2] if names)
    assert split_stack("+".join((*outer, "tls"))) == (*outer, "tls")
    for wrong in (f"tls+{outer[0]}", "aes128gcm16+tls", "tls+tls"):
        with pytest.raises(UsageError, match="before tls or an ESP proposal"):
            split_stack(wrong)
    column = Column("wired", (outer[0], "tls"), "nvme-tcp")
    assert (column.label, column.ipsec) == (f"wired+{outer[0]}+tls.nvme-tcp", "off")
    mode = make_plan(RunRequest(links=("wired",))).ipsec_mode
    within, alone = (framing_of((outer[0], *more), {}, mode, 1500) for more in (("tls",), ()))
    assert within is not None and alone is not None
    assert within.inner_mtu_bytes(1500) == alone.inner_mtu_bytes(1500)


def test_what_lets_tls_in_goes_by_its_priority_and_its_own_address() -> None:
    world = World()
    made = AllowInbound("target", "198.18.7.2", PORT)
    made.acquire(world.host("target"))
    words = world.commands[-1].argv
    assert words[words.index("dir") + 1] == "in" and words[words.index("dport") + 1] == str(PORT)
    (step,) = made.undo()
    assert step.argv[-1] == words[-1] and "198.18.7.2/32" in step.argv


def test_both_ends_are_asked_for_tls_and_a_connection_is_what_was_asked_for() -> None:
    world = World(answers=[(("/usr/bin/python3",), (0, "{}", ""))])
    for has_tls, key in ((False, ""), (True, "0a1b2c3d")):
        export = wanted(world, tls=has_tls)
        up(world).exports(export)[-1].acquire(world.host("target"))
        assert json.loads(world.commands[-1].input or "")["tls"] is has_tls
        assert ("tls" in up(world).options(export).split(",")) is has_tls
        reported = {"queue_count": "2", "sqsize": "127", "tls_key": key}
        with pytest.raises(CommandFailed, match="TLS, found"):
            nvme.negotiated(reported, wanted(world, tls=not has_tls))
        found = nvme.negotiated(reported, export)
        assert found.get("tls") == ("1.3" if key else None) and "tls_key" not in found


def test_a_key_is_reported_on_standard_input_and_nowhere_else(tmp_path: Path) -> None:
    world = World(answers=[(("/usr/bin/python3",), (0, "", ""))])
    sides, export = up(world), wanted(world, tls=True)
    made, _ = sides.exports(export)
    identity = f"NVMe0R01 {sides.host_nqn(0)} {sides.nqn(export)}"
    secret = json.loads(made.make.input)["secret"]
    assert made.name == identity and len(secret) == 2 * nvme.SECRET_BYTES
    assert sides.connections(export)[1] == made
    journal = Journal(tmp_path / "journal.jsonl")
    with journal.hold(world.host("initiator"), made):
        assert secret not in (tmp_path / "journal.jsonl").read_text(encoding="utf-8")
        assert not any(secret in word for word in world.commands[-1].argv)
        assert secret in (world.commands[-1].input or "")
    assert json.loads(world.commands[-1].input or "") == {"do": "remove", "identity": identity}
    assert secret not in repr(made) and secret not in repr(sides)


def test_records_add_22_bytes_to_each_16_kib_and_theory_counts_them() -> None:
    sizes = {72: 94, 16384: 16406, 16385: 16429, 262168: 262542}
    assert {stream: in_records(stream) for stream in sizes} == sizes
    wire = theory.Wire(link=LinkProfile(name="wired", title="wired", emulated=True))
    plain = NvmeDialogue(in_capsule_bytes=16384, window_bytes=1 << 20)
    sealed = dataclasses.replace(plain, tls=True)
    for direction in ("read", "write"):
        bursts = zip(plain.bursts(wire, direction, 4096), sealed.bursts(wire, direction, 4096), strict=True)
        assert [sum(after.segments) - sum(before.segments) for before, after in bursts] == [22, 22]


def test_its_records_are_known_by_their_begin_over_ipv6_too() -> None:
    layered = tls.TlsFrames(port=4420, family=IPV6)
    record = tcp(40000, 4420)[:20] + tls.RECORD + bytes(10)
    assert seen(frame(6, record), layered, port=4420).numbers == {40000: {1}}


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed")
@pytest.mark.parametrize("protected", [False, True])
def test_libpcap_takes_its_filter(protected: bool) -> None:
    require_filter(tls.TlsFrames(port=3260, family=IPV6), protected=protected)


def test_doctor_says_that_it_is_not_possible_on_machines(tmp_path: Path) -> None:
    asked = Asked(transports=(), protections=("tls",))
    ((_, message),) = problems(tried(World(), "target", tmp_path, asked)).items()
    assert "not possible yet over" in message


def test_kernels_before_it_are_built_without_its_options() -> None:
    assert set(source.missed((6, 1))) == {"CONFIG_NVME_TCP_TLS", "CONFIG_NVME_TARGET_TCP_TLS"}
    reported = kernel.lacking(built(RECIPE), dataclasses.replace(OTHER, version=(6, 1)))
    assert reported.startswith("Linux 6.1.192-harness does not have CONFIG_NVME_TCP_TLS (TLS for NVMe/TCP ")


class Tlshd(list[int]):
    """One that has started: the signals that it got. It is gone once it was killed."""

    def ended(self) -> bool:
        return signal.SIGKILL in self

    def signal(self, number: int) -> None:
        self.append(number)


def test_a_tlshd_that_was_killed_has_a_successor_and_one_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[Tlshd]()

    @contextlib.contextmanager
    def daemon(
        _host: FakeHost, argv: Sequence[str], *, log: Path, ready: Any, **_: object
    ) -> Iterator[Tlshd]:
        if argv[0] != tls.DAEMON:
            yield Tlshd()
            return
        assert not ready(), "what its predecessor said is not its own"
        with log.open("a", encoding="utf-8") as stream:
            stream.write("tlshd[7]: Built from ktls-utils 1.0.0\n")
        assert ready()
        started.append(Tlshd())
        yield started[-1]

    monkeypatch.setattr(FakeHost, "daemon", daemon)
    monkeypatch.setattr(tls, "require", lambda _: None)
    run = mock.MagicMock(private=tmp_path, folder=tmp_path)
    run.near = lambda below: below.initiator
    underlay = Underlay(below=path(World()), level=0, mtu_bytes=1500, listeners=mock.Mock(), raw=tmp_path)
    driver = tls.TlsDriver(daemons=tls.TlsDaemons(run=run))
    with contextlib.ExitStack() as run.shared:
        with driver.protect(underlay) as layer:
            for kind in ("handshake-daemon-stopped", "handshake-daemon-killed", "handshake-daemon-stopped"):
                host, resource = layer.breaks()[kind]
                assert host is underlay.below.target and resource.undo() == ()
                resource.acquire(host)
                resource.restore()  # type: ignore[attr-defined]
        stopped = [signal.SIGSTOP, signal.SIGCONT]
        assert started == [[], [*stopped, signal.SIGKILL], stopped]
        # The initiator's serves all paths, the target's only those of its network namespace.
        with driver.protect(underlay):
            assert len(started) == 4
