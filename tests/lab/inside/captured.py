"""What the captures make of real frames: each kind is sent over a link, and tcpdump keeps what is due.

And a capture that is stopped, swamped or killed says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

from harness.hosts import NamespaceHost
from harness.model import LinkProfile
from harness.network.links import LinkPath
from harness.protection.capture import Capture, Seen, capture
from harness.protection.ipsec import IKE_PORT
from harness.protection.ipsec.layer import EspFrames
from tests.lab.inside.kernel import arguments, modprobe, processes, sh
from tests.unit.fakes import arp, esp, ethernet, ipv4, ipv6, tcp, udp, vlan

NEAR, FAR, ROUTER = "10.9.0.1", "10.9.0.2", "10.9.0.3"
PORT = 3260
NOTHING, CLEARTEXT, CONTROL, OTHER, SAMPLE = "nothing", "cleartext", "control", "other", "ESP"
SYN = 0x02
"""Of TCP's flags (RFC 9293, section 3.1)."""


def segment(source: str = NEAR, destination: str = FAR, *, port: int = PORT, flags: int = 0) -> bytes:
    """A segment to the portal; its IP identification is 0, so that it is in each sample."""
    frame = bytearray(tcp(40000, port, source, destination))
    frame[14 + 20 + 12 : 14 + 20 + 14] = bytes([0x50, flags])
    return bytes(frame)


def numbered(identification: int, flags: int = 0) -> bytes:
    frame = bytearray(segment(flags=flags))
    frame[18:20] = identification.to_bytes(2, "big")
    return bytes(frame)


FRAMES: dict[str, tuple[bytes, str, str, str]] = {
    # What a protected column's capture sees, that of one on a link that others use, and a plain one's.
    "a segment of the portal's": (segment(), CLEARTEXT, CLEARTEXT, CLEARTEXT),
    "behind a VLAN tag": (vlan(7, segment()), CLEARTEXT, CLEARTEXT, NOTHING),
    "behind two": (vlan(7, vlan(8, segment()), 0x88A8), CLEARTEXT, NOTHING, NOTHING),
    "its first fragment": (tcp(40000, PORT, NEAR, FAR, fragment=0x2000), CLEARTEXT, CLEARTEXT, CLEARTEXT),
    "its second": (tcp(0, 0, NEAR, FAR, fragment=0x00B9), CLEARTEXT, CLEARTEXT, NOTHING),
    "over IPv6": (ipv6(6, segment()[34:]), CLEARTEXT, NOTHING, NOTHING),
    "one that is not sampled": (numbered(1), CLEARTEXT, CLEARTEXT, NOTHING),
    "a beginning that is not": (numbered(1, flags=SYN), CLEARTEXT, CLEARTEXT, CLEARTEXT),
    "another connection": (segment(port=22), OTHER, NOTHING, NOTHING),
    "ICMP": (ipv4(1, bytes(40), NEAR, FAR), OTHER, NOTHING, NOTHING),
    "ICMP of a router's": (ipv4(1, bytes(40), ROUTER, NEAR), OTHER, NOTHING, NOTHING),
    "IKE": (udp(40000, IKE_PORT, NEAR, FAR), CONTROL, NOTHING, NOTHING),
    "another datagram": (udp(40000, 53, NEAR, FAR), OTHER, NOTHING, NOTHING),
    "ARP": (arp(), CONTROL, NOTHING, NOTHING),
    "neighbour discovery": (ipv6(58, b"\x87" + bytes(31)), CONTROL, NOTHING, NOTHING),
    "LLDP": (ethernet(0x88CC, bytes(60)), OTHER, NOTHING, NOTHING),
    "ESP that is sampled": (esp(7, 512, NEAR, FAR), SAMPLE, SAMPLE, SAMPLE),
    "ESP that is not": (esp(7, 513, NEAR, FAR), NOTHING, NOTHING, SAMPLE),
    "ESP's second fragment": (ipv4(50, bytes(60), NEAR, FAR, fragment=0x00B9), NOTHING, NOTHING, SAMPLE),
}
PEER_S = segment(FAR, NEAR)
"""What the peer would send: it captures that itself."""


def path(*, is_shared: bool) -> LinkPath:
    return LinkPath(
        profile=LinkProfile(name="wired", title="wired", emulated=True, rate_bit_s=10**9),
        index=0,
        port=PORT,
        is_shared=is_shared,
        initiator=NamespaceHost("initiator"),
        target=NamespaceHost("target", "far"),
        initiator_iface="near0",
        target_iface="far0",
        initiator_address=NEAR,
        target_address=FAR,
    )


@contextlib.contextmanager
def wire(iface: str = "near0") -> Iterator[socket.socket]:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as made:
        made.bind((iface, 0))
        yield made


def kind(seen: Seen) -> str:
    assert seen.fault is None, seen.fault
    counts = {CLEARTEXT: seen.cleartext, CONTROL: seen.control, OTHER: seen.other, SAMPLE: seen.sampled}
    found = [name for name, count in counts.items() if count == 1]
    assert len(found) < 2, seen
    return found[0] if found else NOTHING


@contextlib.contextmanager
def watched(folder: str, *, is_shared: bool = False, protected: bool = True) -> Iterator[Capture]:
    place = Path("/root", folder)
    place.mkdir()
    over = path(is_shared=is_shared)
    with capture(over, place, EspFrames.between(over), protected=protected) as captures:
        yield captures


def each_kind_of_frame() -> None:
    for number, folder, is_shared, protected in (
        (1, "own", False, True),
        (2, "others", True, True),
        (3, "plain", False, False),
    ):
        with watched(folder, is_shared=is_shared, protected=protected) as captures, wire() as made:
            for name, case in FRAMES.items():
                made.send(case[0])
                near, far = captures.look()
                assert kind(near) == case[number], f"{folder}: {name} was taken for {kind(near)}"
                # The other end captures what it sends, and of what it receives all that is not its peer's IP.
                assert kind(far) in (NOTHING, case[number]), f"{folder}: {name} at the other end"
            made.send(PEER_S)
            near, far = captures.look()
            assert kind(near) == NOTHING and kind(far) == CLEARTEXT, f"{folder}: {near}, {far}"
    print(f"{len(FRAMES)} frames, three captures each")


def a_tag_that_the_interface_puts_on() -> None:
    """Offloaded: the frame has none when tcpdump's filter sees it."""
    modprobe("8021q")
    sh("ip", "link", "add", "link", "near0", "name", "near0.7", "type", "vlan", "id", "7")
    sh("ip", "link", "set", "near0.7", "up")
    for folder, is_shared in (("tagged", False), ("tagged-others", True)):
        with watched(folder, is_shared=is_shared) as captures, wire("near0.7") as made:
            captures.look()
            made.send(segment())
            assert captures.look()[0].cleartext == 1, folder
    print("a tag that the interface puts on")


def pid_of_the_near_capture() -> int:
    (pid,) = (pid for pid, name in processes().items() if name == "tcpdump" and "near0" in arguments(pid))
    return pid


def is_said(near: Seen, fault: str) -> None:
    assert near.fault is not None and fault in near.fault, near
    print(near.fault)


def captures_that_cannot_be_relied_on() -> None:
    with watched("swamped") as captures, wire() as made:
        pid = pid_of_the_near_capture()
        os.kill(pid, signal.SIGSTOP)
        for _ in range(40_000):
            made.send(segment())
        os.kill(pid, signal.SIGCONT)
        near, far = captures.look()
        is_said(near, "the kernel dropped")
        assert near.cleartext > 0 and far.fault is None
    with watched("killed") as captures, wire() as made:
        made.send(segment())
        os.kill(pid_of_the_near_capture(), signal.SIGKILL)
        is_said(captures.look()[0], "tcpdump has ended")
    with watched("stopped") as captures, wire() as made:
        pid = pid_of_the_near_capture()
        os.kill(pid, signal.SIGSTOP)
        made.send(segment())
        near, _ = captures.look()
        os.kill(pid, signal.SIGCONT)
        is_said(near, "in vain")


def main() -> None:
    modprobe("veth")
    sh("ip", "netns", "add", "far")
    sh("ip", "link", "add", "near0", "type", "veth", "peer", "name", "far0", "netns", "far")
    for netns, iface in (("", "near0"), ("far", "far0")):
        where = ["-n", netns] if netns else []
        # Without IPv6's own frames, and without an address: the kernel is to say nothing of itself.
        sh("ip", *where, "link", "set", iface, "addrgenmode", "none", "up", check=False)
        sh("ip", *where, "link", "set", iface, "up")
    each_kind_of_frame()
    a_tag_that_the_interface_puts_on()
    captures_that_cannot_be_relied_on()


if __name__ == "__main__":
    main()
