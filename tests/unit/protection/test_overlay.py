"""WireGuard, MACsec and their fail-closed policy: framing by the papers' numbers, and what a journal would
carry out."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import cast

import msgspec
import pytest

from harness.analysis import theory
from harness.analysis.wire import framings
from harness.model import IpsecMode
from harness.model.errors import CommandFailed
from harness.model.protections import ICV_BYTES, PROTECTIONS, SECTAG_BYTES
from harness.protection import fail_closed, layer, macsec, mka, overlay, wireguard
from harness.protection.capture import expression
from harness.protection.kind import ProtectionContext, Underlay
from harness.protection.layer import ETHERTYPE_IPV4 as IPV4
from harness.protection.layer import Tally
from harness.protection.xfrm_listener import ListenerReport, OverlayCounters, XfrmListeners
from tests.unit.fakes import FakeXfrmListener, World
from tests.unit.fakes.paths import link_path

PATH = link_path(World(), 7)
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")


def test_a_packet_in_each_protection_and_in_both() -> None:
    # 60 bytes of headers and tag, and padding to 16; the last two would be padded beyond the MTU.
    packets = {52: 124, 64: 124, 65: 140, 1300: 1372, 1409: 1480, 1420: 1480}
    stacks = (("wireguard",), ("macsec",), ("macsec", "wireguard"))
    made = (framings.of(stack, {}, IpsecMode.TRANSPORT, 1500) for stack in stacks)
    wireguarded, channel, both = filter(None, made)
    assert wireguarded.inner_mtu_bytes(1500) == 1420
    assert {cleartext: wireguarded.packet_bytes(cleartext) for cleartext in packets} == packets
    assert channel.inner_mtu_bytes(1500) == 1468
    assert channel.packet_bytes(1468) == 1500 and channel.packet_bytes(40) == 72
    assert both.inner_mtu_bytes(1500) == 1388
    assert both.packet_bytes(52) == 52 + 12 + 60 + 32
    assert theory.Wire(link=PATH.profile, framing=both).mss_bytes == 1388 - 52
    size = 1300
    sealed = wireguarded.packet_bytes(size) - PROTECTIONS["wireguard"].around_bytes - 20
    assert sealed - size == -size % 16
    assert channel.packet_bytes(size) == size + SECTAG_BYTES + ICV_BYTES


def test_the_path_within_ends_at_addresses_of_its_own() -> None:
    first, second = (overlay.inner_path(PATH, tag="abcd", level=level) for level in (0, 1))
    assert (first.initiator_address, first.target_address) == ("198.18.7.129", "198.18.7.130")
    assert (second.initiator_address, second.initiator_iface) == ("198.18.7.133", "habcdx7")
    assert len(overlay.name("abcd", link_path(World(), 255), 3)) < 16
    # Channels on one interface of the user's differ by their port.
    ports = {macsec.channel_port(link_path(World(), index)) for index in range(256)}
    assert len(ports) == 256 and min(ports) == 1


def test_a_fail_closed_goes_by_its_priority_even_when_the_interface_is_gone() -> None:
    (stop,) = fail_closed.InterfaceFailClosed("initiator", "198.18.7.130", 3260).undo()
    (let,) = fail_closed.AllowOutbound("initiator", "198.18.7.130", 3260, "habcdw7").undo()
    assert stop.argv[:4] == ("ip", "xfrm", "policy", "deleteall") and "dev" not in let.argv
    assert stop.argv[-1] != let.argv[-1]


def test_connections_end_before_their_fail_closed() -> None:
    """On an interface of the user's by their port alone, on one of the run's also with its addresses."""
    theirs = dataclasses.replace(PATH, is_shared=True, port=3276)
    for path, steps in ((PATH, 2), (theirs, 1)):
        for number, (_, connections) in enumerate(fail_closed.Connections.at_the_ends_of(path)):
            end, *rest = connections.undo()
            words = " ".join(end.argv)
            peer = (path.target_address, path.initiator_address)[number]
            assert words.startswith("ss ") and f"dst {peer} {'ds'[number]}port = :{path.port}" in words
            assert len([end, *rest]) == steps
            iface = (path.initiator_iface, path.target_iface)[number]
            assert all(step.argv == ("ip", "address", "flush", "dev", iface) for step in rest)


def carried(**agreed: int | bool) -> ListenerReport:
    counted = OverlayCounters(tx_packets=1, tx_bytes=100, rx_packets=1, rx_bytes=100, agreed=agreed)
    return ListenerReport(before="", carried=counted, after="")


RUN = cast(ProtectionContext, None)
"""It is asked for nothing."""
UNDERLAY = Underlay(below=PATH, level=0, mtu_bytes=1500, listeners=cast(XfrmListeners, None), raw=Path())


def test_a_tunnel_or_channel_that_is_not_what_was_asked_for_is_refused() -> None:
    tunnel, done = wireguard.WireGuardDriver(run=RUN), carried(handshake_unix_s=1_700_000_000)
    assert tunnel.agreed((done, done), UNDERLAY) == {"algorithm": "chacha20poly1305"}
    with pytest.raises(CommandFailed, match="handshake"):
        tunnel.agreed((done, carried(handshake_unix_s=0)), UNDERLAY)
    cipher = "gcm-aes-256"
    channel = macsec.MacsecDriver(run=RUN, cipher=cipher)
    good = {"cipher": macsec.CIPHERS[cipher][1], "is_encrypting": True, "is_strict": True}
    assert channel.agreed((carried(**good), carried(**good)), UNDERLAY)["algorithm"] == cipher
    for wrong in ({"is_encrypting": False}, {"is_strict": False}, {"cipher": 1}):
        with pytest.raises(CommandFailed, match="expected MACsec with"):
            channel.agreed((carried(**good), carried(**good | wrong)), UNDERLAY)


def test_keys_are_in_no_text() -> None:
    world = World()
    macsec.tell(link_path(world, 7), MACS, "gcm-aes-128")
    # The fake lists the lines of a batch as commands, too.
    processes = [command for command in world.commands if command.input]
    near, far = (re.findall(r"\b[0-9a-f]{32}\b", command.input or "") for command in processes)
    assert len(set(near)) == 2 and near == far[::-1], "one for each direction"
    assert not any(key in word for key in near for command in processes for word in command.argv)
    secret = mka.Secret()
    assert len(secret.key) == 32 and secret.key not in repr(secret)
    text = mka.configuration(secret, priority=2, port=1, socket=Path("/run/x"))
    for line in (f"mka_cak={secret.key}", f"mka_ckn={secret.name}", "mka_priority=2"):
        assert line in text.splitlines()


def datagram(payload: bytes, port: int = 0x4807) -> bytes:
    """An IPv4 packet with UDP between a port and the same."""
    header = bytes([0x45]) + bytes(8) + bytes([17]) + bytes(10)
    return header + 2 * port.to_bytes(2, "big") + bytes(4) + payload


def test_packets_are_known_by_their_numbers() -> None:
    data = bytes([4, 0, 0, 0]) + (9).to_bytes(4, "little") + (513).to_bytes(8, "little") + bytes(16)
    tunnel = wireguard.WireGuardFrames(port=0x4807)
    assert tunnel.number(IPV4, datagram(data)) == (9, 513)
    handshake = datagram(bytes([1]) + bytes(147))
    assert tunnel.number(IPV4, handshake) is None and tunnel.is_control(IPV4, handshake)
    others = datagram(data, port=0x4808)
    assert tunnel.number(IPV4, others) is None and not tunnel.is_control(IPV4, others)
    channel = macsec.MacsecFrames(macs=MACS)
    assert channel.number(macsec.ETHERTYPE, bytes([0x2C, 0]) + (513).to_bytes(4, "big")) == (0, 513)
    assert channel.number(IPV4, datagram(data)) is None
    assert channel.is_control(mka.ETHERTYPE, b"\3\5") and not channel.is_control(IPV4, datagram(data))

    # What comes in is known by its sender, because frames have no addresses.
    assert expression(PATH, "initiator", channel, protected=True, one_in=64) == (
        "not ((ip src host 198.18.7.2 and ip dst host 198.18.7.1) or "
        "(ether proto 0x88e5 and ether src 02:00:00:00:00:02)) and "
        "(not (ether proto 0x88e5) or (ether proto 0x88e5 and ether[16:4] & 0x3f = 0))"
    )
    assert "ether src 02:00:00:00:00:01" in expression(PATH, "target", channel, protected=True, one_in=64)


def test_of_unnumbered_packets_so_many_samples_are_due() -> None:
    def due(packets: int) -> layer.Due:
        before, after = (Tally(out=layer.Carried(packets=count)) for count in (7, packets))
        return wireguard.WireGuardDriver(run=RUN).due(before, after, 64)

    assert due(7 + 640 + wireguard.UNNUMBERED).total == 9
    assert due(8).total == 0 and due(8).missing({}) == 0
    assert layer.Due(count=3).missing({1: {64}, 2: {64}}) == 1


def test_a_peer_that_vanishes_takes_its_counters_back() -> None:
    """WireGuard counts bytes for its peer, and packets for the interface, which stays."""
    there = OverlayCounters(tx_packets=10, tx_bytes=1320, rx_packets=7, rx_bytes=924)
    gone = msgspec.structs.replace(there, tx_packets=11, tx_bytes=0, rx_bytes=0)

    def tally(counted: OverlayCounters) -> Tally:
        both = XfrmListeners(
            ends=(FakeXfrmListener(ListenerReport(before="", carried=counted, after="")),) * 2
        )
        kind = wireguard.WireGuardDriver
        layer = overlay.OverlayLayer(kind=kind, below=PATH, inner=PATH, watchers=both, agreed={})
        return layer.look()[0].tally

    was, now = tally(there), tally(gone)
    assert was.out.went_back(now.out) and was.into.went_back(now.into)
    assert (was.out.grown(now.out).bytes, was.out.grown(now.out).packets) == (0, 1)
    assert wireguard.WireGuardDriver(run=RUN).due(now, was, 64).total == 0
