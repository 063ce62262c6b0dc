"""WireGuard: framing by the paper's numbers, packets by their own, and what counts as agreed."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.analysis.wire import framing_of
from harness.hosts import Host
from harness.hosts.programs.netlink import attribute, attributes, nested
from harness.model import IPV4, IPV6, IpsecMode
from harness.model.errors import CommandFailed
from harness.model.protections import PROTECTIONS
from harness.protection import layer, overlay
from harness.protection.capture import expression
from harness.protection.layer import ETHERTYPE_IPV4, Tally
from harness.protection.wireguard import faults
from harness.protection.wireguard import kind as wireguard
from harness.protection.wireguard.programs import interface
from harness.protection.xfrm_listener import ListenerReport, OverlayCounters, XfrmListeners
from harness.storage import requests
from harness.testbeds.requirements import Asked
from tests.unit.fakes import FakeXfrmListener, World
from tests.unit.protection.test_overlay import PATH, RUN, UNDERLAY, carried, datagram
from tests.unit.protection.test_pre_existing import judged, portal, way
from tests.unit.test_ipv6 import frame, require_filter, seen, udp
from tests.unit.testbeds.test_selftest import problems, tried


def test_packets_are_padded_within_the_interface_s_mtu() -> None:
    # 60 bytes of headers and tag, and padding to 16; the last two would be padded beyond the MTU.
    packets = {52: 124, 64: 124, 65: 140, 1300: 1372, 1409: 1480, 1420: 1480}
    for family, more_bytes in ((IPV4, 0), (IPV6, 20)):
        made = framing_of(("wireguard",), {}, IpsecMode.TRANSPORT, 1500, family)
        assert made is not None and made.inner_mtu_bytes(1500) == 1420
        assert {size: made.packet_bytes(size) - more_bytes for size in packets} == packets
    size = 1300
    assert packets[size] - PROTECTIONS["wireguard"].around_bytes - 20 - size == -size % 16


def test_one_that_is_not_what_was_asked_for_is_refused() -> None:
    tunnel, done = wireguard.WireGuardDriver(run=RUN), carried(handshake_unix_ns=1_700_000_000 * 10**9)
    assert tunnel.agreed((done, done), UNDERLAY) == {"algorithm": "chacha20poly1305"}
    with pytest.raises(CommandFailed, match="handshake"):
        tunnel.agreed((done, carried(handshake_unix_ns=0)), UNDERLAY)


def test_packets_are_known_by_their_numbers() -> None:
    data = bytes([4, 0, 0, 0]) + (9).to_bytes(4, "little") + (513).to_bytes(8, "little") + bytes(16)
    tunnel = wireguard.WireGuardFrames(port=0x4807)
    assert tunnel.number(ETHERTYPE_IPV4, datagram(data)) == (9, 513)
    handshake = datagram(bytes([1]) + bytes(147))
    assert tunnel.number(ETHERTYPE_IPV4, handshake) is None
    assert tunnel.is_control(ETHERTYPE_IPV4, handshake)
    others = datagram(data, port=0x4808)
    assert tunnel.number(ETHERTYPE_IPV4, others) is None
    assert not tunnel.is_control(ETHERTYPE_IPV4, others)
    guard = wireguard.WireGuardFrames(port=18435, family=IPV6)
    assert seen(frame(17, udp(18435, 18435, struct.pack("<IIQ", 4, 9, 77))), guard).numbers == {9: {77}}


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed")
def test_libpcap_takes_its_filter() -> None:
    guard = wireguard.WireGuardFrames(port=18435, family=IPV6)
    for protected in (False, True):
        require_filter(guard, protected=protected)


def test_of_unnumbered_packets_so_many_samples_are_due() -> None:
    def due(packets: int) -> layer.Due:
        before, after = (Tally(out=layer.Carried(packets=count)) for count in (7, packets))
        return wireguard.WireGuardDriver(run=RUN).due(before, after, 64)

    assert due(7 + 640 + wireguard.UNNUMBERED).total == 9
    assert due(8).total == 0 and due(8).missing({}) == 0


def layer_of(ends: tuple[FakeXfrmListener, ...] = ()) -> overlay.OverlayLayer:
    both = XfrmListeners(ends=ends)
    return overlay.OverlayLayer(
        kind=wireguard.WireGuardDriver, below=PATH, inner=PATH, watchers=both, agreed={}
    )


def test_a_peer_that_vanishes_takes_its_counters_back() -> None:
    """WireGuard counts bytes for its peer, and packets for the interface, which stays."""
    there = OverlayCounters(tx_packets=10, tx_bytes=1320, rx_packets=7, rx_bytes=924)
    gone = msgspec.structs.replace(there, tx_packets=11, tx_bytes=0, rx_bytes=0)

    def tally(counted: OverlayCounters) -> Tally:
        end = FakeXfrmListener(ListenerReport(before="", carried=counted, after=""))
        return layer_of((end, end)).look()[0].tally

    was, now = tally(there), tally(gone)
    assert was.out.went_back(now.out) and was.into.went_back(now.into)
    assert (was.out.grown(now.out).bytes, was.out.grown(now.out).packets) == (0, 1)
    assert wireguard.WireGuardDriver(run=RUN).due(now, was, 64).total == 0


def test_it_is_recognised_with_what_is_within_it() -> None:
    found = way("lab-own-kernel", "10.9.0.2")
    assert found.names == ("wireguard", "chacha20poly1305") and not found.notes
    assert found.steps[0].below and found.steps[0].below.device.name == "nic0"
    found = way("lab-own-kernel", "10.9.0.3")
    assert (found.names, found.notes) == ((), ("wg0 has no peer for 10.9.0.3",))


def test_what_the_kernel_agreed_on_is_said_and_a_capture_below_knows_it() -> None:
    outer, inner = way("lab-own-kernel", "10.9.0.2").steps
    assert outer.found.agreed == {"algorithm": "chacha20poly1305", "interface": "wg0"}
    assert inner.found.agreed["mode"] == "transport"
    within = portal("10.9.0.2", "wg0", "10.9.0.1")
    assert inner.path_below(within) == within and not inner.is_hidden
    below = outer.path_below(within)
    addresses = (below.initiator_address, below.target_address)
    assert (below.initiator_iface, addresses) == ("nic0", ("192.0.2.1", "192.0.2.2"))
    clear = "(ip dst host 10.9.0.2 and (tcp port 3260 or (ip proto 6 and ip[6:2] & 0x1fff != 0)))"
    assert expression(below, "initiator", outer.found.frames, protected=True, one_in=64, within=within) == (
        "(ip src host 192.0.2.1 and ip dst host 192.0.2.2 and (udp and src port 41820 and dst port 51820 and "
        f"udp[8] = 4 and udp[16] & 0x3f = 0)) or {clear} or (vlan and {clear})"
    )
    # On an interface without Ethernet no tag is looked for.
    assert outer.is_ethernet and not inner.is_ethernet
    bare = expression(
        within, "initiator", inner.found.frames, protected=True, one_in=1, within=within, has_tags=False
    )
    assert "vlan" not in bare


def test_of_packets_that_are_protected_again_no_sample_is_due() -> None:
    found, reasons = judged(layer_of())
    assert not reasons and not found.packets_expected
    _, (more,) = judged(layer_of(), carried=1000)
    assert "WireGuard carried only 1000" in more


def test_doctor_tries_an_interface(tmp_path: Path) -> None:
    asked = Asked(transports=(), protections=("wireguard",))
    assert "an interface of WireGuard" in [each.what for each in tried(World(), "target", tmp_path, asked)]
    world = World(broken=lambda command: command.argv == ("modprobe", "wireguard"))
    ((_, message),) = problems(tried(world, "target", tmp_path, asked)).items()
    assert "needs the module wireguard" in message


@pytest.mark.parametrize(
    ("kind", "meanwhile", "before"),
    [
        (
            "endpoint-changed",
            {"address": "127.0.0.1", "port": 9},
            {"address": "198.18.7.2", "port": 0x4807},
        ),
        ("handshakes-blocked", {"preshared": "ff" * 32}, {"preshared": "00" * 32}),
    ],
)
def test_a_fault_changes_the_initiator_s_peer_and_its_host_can_undo_it(
    kind: str, meanwhile: dict[str, Any], before: dict[str, Any]
) -> None:
    within = overlay.inner_path(PATH, tag="abcd", level=0)
    host, fault = faults.of_peer(PATH, within, wireguard.port(PATH, 0))[kind]
    assert host is PATH.initiator
    assert isinstance(fault, requests.Made)
    for step, values in [(fault.make, meanwhile), (fault.remove, before)]:
        assert json.loads(step.input) == {"do": "change", "interface": "habcdw7", **values}


@pytest.mark.parametrize(
    ("request_", "changed"),
    [
        (
            {"address": "127.0.0.1", "port": 9},
            {interface.PEER_ENDPOINT: struct.pack("=H", 2) + bytes([0, 9, 127, 0, 0, 1]) + bytes(8)},
        ),
        ({"preshared": "ff" * 32}, {interface.PEER_PRESHARED: b"\xff" * 32}),
    ],
)
def test_a_peer_that_is_changed_stays_and_keeps_the_rest(
    request_: dict[str, Any], changed: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, asked = bytes(range(32)), list[tuple[int, bytes]]()

    class Kernel:
        def __init__(self, _family: str) -> None:
            pass

        def ask(self, command: int, body: bytes, _flags: int) -> list[dict[int, bytes]]:
            asked.append((command, body))
            return [{interface.WG_PEERS: nested(0, attribute(interface.PEER_PUBLIC, key))}]

    monkeypatch.setattr(interface, "NetlinkFamily", Kernel)
    interface.change_peer({"interface": "wg0", **request_})
    _, (command, body) = asked
    said = dict(attributes(body))
    assert command == interface.WG_SET and said.keys() == {interface.WG_IFNAME, interface.WG_PEERS}
    ((_, peer),) = attributes(said[interface.WG_PEERS])
    update = struct.pack("=I", interface.PEER_UPDATE_ONLY)
    same = {interface.PEER_PUBLIC: key, interface.PEER_FLAGS: update}
    assert dict(attributes(peer)) == same | changed


def test_a_key_outlasts_a_boot_in_memory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    key, said = bytes(range(32)), list[dict[int, bytes]]()

    class Kernel:
        def __init__(self, _family: str) -> None:
            pass

        def ask(self, command: int, body: bytes, _flags: int) -> list[dict[int, bytes]]:
            if command == interface.WG_SET:
                said.append(dict(attributes(body)))
            return [{interface.WG_PRIVATE: key, interface.WG_PUBLIC: b"public"}]

    monkeypatch.setattr(interface, "NetlinkFamily", Kernel)
    asked = list[tuple[str, str]]()

    def answer(_host: Host, what: str, **request: str) -> dict[str, Any]:
        asked.append((what, request["interface"]))
        return interface.tell_key(request)

    monkeypatch.setattr(wireguard, "ask", answer)
    kept = wireguard.KeptKey("wg0")
    kept.acquire(PATH.target)
    assert asked == [("tell", "wg0")] and not kept.undo()
    assert key.hex() == kept.private_key and key.hex() not in repr(kept)
    answers = [interface.open_wireguard({"interface": "wg0", "port": 7, "private_key": kept.private_key})]
    answers.append(interface.open_wireguard({"interface": "wg0", "port": 7}))
    assert said[0][interface.WG_PRIVATE] == key != said[1][interface.WG_PRIVATE]
    assert answers == [{"public_key": b"public".hex()}] * 2
