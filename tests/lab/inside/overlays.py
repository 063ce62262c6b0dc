"""WireGuard, MACsec, and ESP over MACsec: an iSCSI disk through each, proved and counted on the wire.

`python -m tests.lab.inside.overlays wireguard|macsec|macsec+esp`, on a kernel that has them. What leaves in
clear on purpose is seen before the barrier and stopped and counted behind it; the interface below counts the
very bytes that the protection's counters and its framing account for; and nothing is left.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from harness import charon, initiator, inside, ipsec, links, macsec, overlay, theory, wireguard
from harness.hosts import Host, NamespaceHost
from harness.initiator import IscsiSession
from harness.journal import Journal
from harness.links import LinkPath
from harness.model import BackingKind, IkeAuth, IpsecMode
from harness.profiles import load_link, load_proposal
from harness.target import Backstore, IscsiTarget, iqn, mount_configfs
from tests.lab.inside.kernel import sh

FOLDER = Path("/run/overlays")
TAG = secrets.token_hex(2)
SIZE_MIB = 64
CHAP_SECRET = "of this lab alone"  # noqa: S105
MODULES = (
    "brd",
    "veth",
    "sch_netem",
    "target_core_mod",
    "target_core_iblock",
    "iscsi_target_mod",
    "iscsi_tcp",
    "sd_mod",
)
JOBS = (("read", "4k"), ("write", "4k"), ("read", "256k"), ("write", "256k"))
RUNTIME_S = 1
LEAST_BYTES = 100_000
"""What ESP has carried each way at the least."""


CONTROL_BYTES = 60 * 14
"""ARP, and what IKE sends now and then."""


def blocked(host: Host) -> int:
    (text,) = host.read_files(["/proc/net/xfrm_stat"])
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("XfrmOutPolBlock"))


def knocks(address: str, port: int) -> str:
    """What comes of a connection from the initiator: the name of the error."""
    with socket.socket() as made:
        made.settimeout(1)
        try:
            made.connect((address, port))
        except OSError as error:
            return type(error).__name__
    return "connected"


class Tap:
    """tcpdump at the initiator's end of a link, of all that is not ``expression``."""

    def __init__(self, path: LinkPath, expression: str, stack: contextlib.ExitStack) -> None:
        self.file = FOLDER / f"tap-{secrets.token_hex(2)}.pcap"
        log = self.file.with_suffix(".log")
        stack.enter_context(
            path.initiator.daemon(
                ["tcpdump", "-i", path.initiator_iface, "-p", "-n", "-U", "--immediate-mode", "-Z", "root"]
                + ["-s", "96", "-w", "-", f"not ({expression})"],
                log=log,
                output=self.file,
                ready=lambda: b"listening on" in log.read_bytes(),
                deadline_s=10,
            )
        )

    def seen(self, expression: str = "") -> list[str]:
        sh("sleep", "0.2")
        text = sh("tcpdump", "-n", "-r", str(self.file), *([expression] if expression else []))
        return [line for line in text.splitlines() if not line.startswith(("reading from", "dropped"))]


def shows_what_is_in_clear(path: LinkPath, tap: Tap) -> None:
    said = knocks(path.target_address, path.port)
    assert said == "ConnectionRefusedError", said
    assert tap.seen(f"tcp port {path.port}"), "the capture did not see a segment in clear"


def stops(host: Host, address: str, port: int, tap: Tap) -> None:
    """The barrier stops a connection, and counts it."""
    before, seen = blocked(host), len(tap.seen(f"tcp port {port}"))
    said = knocks(address, port)
    assert said == "PermissionError" and blocked(host) > before, (address, said, blocked(host) - before)
    assert len(tap.seen(f"tcp port {port}")) == seen, f"a segment to {address} left in clear"


def ramdisk() -> str:
    sh("modprobe", "brd", f"rd_size={SIZE_MIB * 1024}", "rd_nr=1")
    return "/dev/ram0"


@contextlib.contextmanager
def iscsi_disk(journal: Journal, near: Host, path: LinkPath, device: str) -> Iterator[str]:
    """A disk over iSCSI, whose portal is at the end of ``path``."""
    store, name = f"harness-{TAG}-0", iqn(TAG, "initiator")
    with contextlib.ExitStack() as stack:
        backstore = Backstore(store, BackingKind.BLOCK, device, SIZE_MIB << 20, store)
        stack.enter_context(journal.hold(near, backstore))
        stack.enter_context(
            initiator.iscsid(
                journal,
                near,
                initiator_iqn=name,
                chap_user="harness",
                secret=CHAP_SECRET,
                log=FOLDER / "iscsid.log",
            )
        )
        target = IscsiTarget(
            iqn=iqn(TAG, "t"),
            backstore=store,
            address=path.target_address,
            port=path.port,
            initiator_iqn=name,
            chap_user="harness",
            secret=CHAP_SECRET,
        )
        stack.enter_context(journal.hold(path.target, target))
        session = IscsiSession(target.iqn, path.target_address, path.port, name)
        stack.enter_context(journal.hold(near, session))
        yield initiator.await_disk(near, session, serial=store).device


class Count(msgspec.Struct, frozen=True):
    """What the initiator's end of the link below has counted."""

    tx_bytes: int
    tx_packets: int
    rx_bytes: int
    rx_packets: int

    @classmethod
    def now(cls, iface: str) -> Count:
        folder = Path("/sys/class/net", iface, "statistics")
        return cls(*(int((folder / name).read_text()) for name in cls.__struct_fields__))

    def grown(self, later: Count) -> Count:
        before, after = msgspec.structs.astuple(self), msgspec.structs.astuple(later)
        return Count(*(b - a for a, b in zip(before, after, strict=True)))


def fio(device: str, kind: str, block: str) -> tuple[int, float]:
    """Bytes moved, and MB/s."""
    argv = ["fio", "--name=j", f"--filename={device}", f"--rw=rand{kind}", f"--bs={block}", "--direct=1"]
    argv += [f"--runtime={RUNTIME_S}", "--time_based", "--ioengine=psync", "--output-format=json"]
    said = sh(*argv, "--allow_file_create=0", f"--size={SIZE_MIB}m")
    job = json.loads(said[said.index("{") :])["jobs"][0][kind]
    return int(job["io_bytes"]), job["bw_bytes"] / 1e6


FrameBytes = Callable[[int, int, int], int]


def measured(
    path: LinkPath, within: LinkPath, watchers: overlay.Watchers, frame_bytes: FrameBytes, disk: str
) -> None:
    """fio on a disk: what the protection's counters and its framing say has to be what the link counted."""
    for kind, block in JOBS:
        before, (carried, far_before) = Count.now(path.initiator_iface), watchers.look()
        inner = Count.now(within.initiator_iface)
        moved, mb_s = fio(disk, kind, block)
        (now, far_now), after = watchers.look(), Count.now(path.initiator_iface)
        counted, above = before.grown(after), inner.grown(Count.now(within.initiator_iface))
        one, two = carried.carried, now.carried
        ways = (
            ("sent", counted.tx_bytes, two.tx_packets - one.tx_packets, two.tx_bytes - one.tx_bytes),
            ("received", counted.rx_bytes, two.rx_packets - one.rx_packets, two.rx_bytes - one.rx_bytes),
        )
        for way, on_link, packets, carried_bytes in ways:
            accounted = frame_bytes(packets, carried_bytes, theory.ETHERNET_HEADER_BYTES)
            assert abs(on_link - accounted) <= CONTROL_BYTES, (kind, block, way, on_link, accounted, packets)
            assert (carried_bytes > moved) == ((kind == "read") == (way == "received")), (kind, way, moved)
        # The target has counted the same.
        gone = far_now.carried.rx_packets - far_before.carried.rx_packets
        assert abs(gone - ways[0][2]) <= 4, (gone, ways[0][2])
        print(
            f"{kind} {block}: {mb_s:.1f} MB/s, {moved} bytes of data; link sent {counted.tx_bytes} received "
            f"{counted.rx_bytes}; carried {ways[0][2:]} {ways[1][2:]}; interface {above}"
        )


def left() -> str:
    """What of a run is still there."""
    return (
        sh("ip", "xfrm", "policy", "list")
        + sh("ip", "xfrm", "state", "list")
        + "".join(line for line in sh("ip", "-o", "link").splitlines(keepends=True) if f"h{TAG}" in line)
    )


def wireguard_column(journal: Journal, path: LinkPath, device: str) -> None:
    with contextlib.ExitStack() as stack:
        tap = Tap(path, wireguard.expression(path, 0), stack)
        shows_what_is_in_clear(path, tap)
        within = overlay.inside(path, tag=TAG, level=0)
        stack.enter_context(overlay.closed(journal, path, within))
        stops(path.initiator, path.target_address, path.port, tap)
        stops(path.initiator, within.target_address, path.port, tap)
        mtu = path.profile.mtu_bytes
        stack.enter_context(wireguard.tunnel(journal, path, tag=TAG, mtu_bytes=mtu))
        watchers = stack.enter_context(overlay.watchers(path, within, "wireguard", FOLDER))
        near, far = watchers.look()
        print(wireguard.agreed((near.carried, far.carried), mtu))
        before = len(tap.seen("tcp"))
        with iscsi_disk(journal, path.initiator, within, device) as disk:
            measured(path, within, watchers, wireguard.frames_bytes, disk)
        assert len(tap.seen("tcp")) == before, tap.seen("tcp")
        stops(path.initiator, path.target_address, path.port, tap)
        path.initiator.run(["ip", "link", "del", "dev", within.initiator_iface])
        stops(path.initiator, within.target_address, path.port, tap)


def macsec_column(journal: Journal, path: LinkPath, device: str, *, esp: bool) -> None:
    with contextlib.ExitStack() as stack:
        tap = Tap(path, macsec.expression(), stack)
        shows_what_is_in_clear(path, tap)
        within = overlay.inside(path, tag=TAG, level=0)
        stack.enter_context(overlay.closed(journal, path, within))
        stops(path.initiator, path.target_address, path.port, tap)
        stops(path.initiator, within.target_address, path.port, tap)
        keys, mtu = macsec.make_keys("gcm-aes-128"), path.profile.mtu_bytes
        stack.enter_context(macsec.channel(journal, path, keys, tag=TAG, mtu_bytes=mtu))
        watchers = stack.enter_context(overlay.watchers(path, within, "macsec", FOLDER))
        near, far = watchers.look()
        print(macsec.agreed((near.carried, far.carried), keys, mtu))
        if esp:
            over_it = esp_over(journal, within, stack)
        before = len(tap.seen("ip"))
        with iscsi_disk(journal, path.initiator, within, device) as disk:
            measured(path, within, watchers, macsec.frames_bytes, disk)
            if esp:
                sizes = over_it()
                assert len(sizes) == 2 and min(sizes) > LEAST_BYTES, sizes
        assert len(tap.seen("ip")) == before, tap.seen("ip")
        stops(path.initiator, path.target_address, path.port, tap)
        if not esp:
            path.initiator.run(["ip", "link", "del", "dev", within.initiator_iface])
            stops(path.initiator, within.target_address, path.port, tap)


def esp_over(journal: Journal, path: LinkPath, stack: contextlib.ExitStack) -> Callable[[], list[int]]:
    """IPsec between the ends of an overlay; tells how many bytes each security association has carried."""
    sh("modprobe", "-a", "xfrm_user", "esp4")
    proposal = load_proposal("aes128gcm16")
    for end, host, _, own, peer in overlay.ends(path):
        stack.enter_context(
            journal.hold(host, ipsec.Barrier(end, path.initiator_address, path.target_address, path.port))
        )
        stack.enter_context(
            journal.hold(host, ipsec.SecurityAssociations(own, peer, path.index, path.is_shared))
        )
    charons = tuple(
        stack.enter_context(
            charon.running(
                host, FOLDER / end, log=FOLDER / f"charon-{end}.log", plugins=charon.BASE_PLUGINS, port=port
            )
        )
        for (end, host, *_), port in zip(overlay.ends(path), (charon.ANY_PORT, ipsec.IKE_PORT), strict=True)
    )
    near, far = charons
    stack.enter_context(
        ipsec.tunnel(
            path,
            (near, far),
            name=f"harness-{TAG}-{path.index}",
            proposal=proposal,
            mode=IpsecMode.TRANSPORT,
            credentials=ipsec.make_credentials(path.initiator, IkeAuth.PSK, FOLDER, paths=1),
        )
    )

    def carried() -> list[int]:
        told = sh("ip", "-s", "xfrm", "state", "list", "nokeys")
        return [int(size) for size in re.findall(r"lifetime current:\s+(\d+)\(bytes\)", told)]

    return carried


def main(kind: str) -> None:
    FOLDER.mkdir()
    inside.mount_private()
    more = {"wireguard": wireguard.MODULES}.get(kind, macsec.MODULES)
    for module in (*MODULES, "xfrm_user", *more):
        if module != "brd":
            sh("modprobe", module)
    device = ramdisk()
    near = NamespaceHost("initiator")
    mount_configfs(near)
    journal = Journal(FOLDER / "journal.jsonl")
    policies = left()
    with links.bring_up(journal, near, load_link("wired"), tag=TAG, index=3) as path:
        if kind == "wireguard":
            wireguard_column(journal, path, device)
        else:
            macsec_column(journal, path, device, esp=kind == "macsec+esp")
    assert not journal.leaks and not journal.open_entries(), journal.leaks
    assert left() == policies, left()
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
