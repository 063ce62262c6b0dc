"""What protects the way to an address, recognised from what one end's kernel tells.

``recorded/lab-*.json`` are outputs of iproute2 6.1 and of our programs in the lab's kernels, where the
interfaces and policies were made by hand. Those of Tailscale, ZeroTier, OpenVPN and the kind xfrm are of
their public documentation and bug reports, in iproute2's JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.hosts import NamespaceHost
from harness.hosts.black_box import BlackBoxHost
from harness.hosts.runner import Completed
from harness.model import LinkProfile, Proof
from harness.model.errors import RequirementError
from harness.network.links import LinkPath
from harness.observe.counters import InterfaceCounters
from harness.protection import kinds, pre_existing, proof
from harness.protection.capture import Capture, Seen
from harness.protection.ipsec.layer import EspFrames
from harness.protection.layer import ETHERTYPE_IPV4, Carried, Layer, Tally
from harness.protection.pre_existing import FoundProtection
from harness.protection.proof import CapturedLayer, EndCounters, Segments
from harness.protection.tunnel import kind as tunnel
from tests.unit.fakes import World
from tests.unit.fakes.ipsec import association
from tests.unit.fakes.paths import link_path

RECORDED = Path(__file__).parent / "recorded"
CRYPTO = "name         : rfc4106(gcm(aes))\ndriver       : rfc4106-gcm-aesni\npriority     : 400\n"


@dataclass(frozen=True, eq=False)
class RecordedHost(NamespaceHost):
    """One that says what was recorded, and refuses all else."""

    said: Mapping[str, str] = field(kw_only=True)

    def _run(
        self, argv: Sequence[str], input: str | None, timeout_s: float, env: Mapping[str, str]
    ) -> Completed:
        del timeout_s, env
        text = self.said.get(input or " ".join(argv))
        return Completed(argv=tuple(argv), status=0 if text else 2, stdout=text or "", stderr="")

    def read_files(self, paths: Sequence[str]) -> list[str]:
        assert list(paths) == ["/proc/crypto"]
        return [CRYPTO]


def recorded(name: str) -> RecordedHost:
    said = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return RecordedHost("initiator", said=said)


def way(name: str, address: str) -> FoundProtection:
    return pre_existing.protection_to(recorded(name), address, 3260)


@pytest.mark.parametrize(
    ("kernel", "address", "names", "below"),
    [
        ("own", "192.0.2.2", (), ""),
        ("own", "192.0.2.9", ("aes128gcm16",), "nic0 192.0.2.9"),
        ("own", "10.77.0.5", ("aes256-sha256",), "nic0 192.0.2.3"),
        ("debian", "10.70.0.1", ("aes128gcm16",), "nic0 192.0.2.3"),  # vti
        ("debian", "10.71.0.1", ("aes256gcm16",), "nic0 192.0.2.9"),  # GRE within ESP
        ("debian", "10.72.0.1", (), ""),  # a bare IPIP tunnel
        ("debian", "192.0.2.3", (), ""),  # its end: the policy is for marked packets
    ],
)
def test_what_the_lab_s_kernels_told(kernel: str, address: str, names: tuple[str, ...], below: str) -> None:
    found = way(f"lab-{kernel}-kernel", address)
    assert found.names == names and not found.notes
    outermost = [f"{step.below.device.name} {step.found.peer}" for step in found.steps[:1] if step.below]
    assert outermost == [below] * bool(below)


def test_what_looks_like_a_protection_and_is_none_is_said_and_so_is_that_no_route_is_there() -> None:
    for address, note in (
        ("192.0.2.7", "IPsec to 192.0.2.7 has no security association"),
        ("10.66.0.5", "tun7 is a tunnel of an unknown program"),
    ):
        found = way("lab-own-kernel", address)
        assert (found.names, found.notes) == ((), (note,))
    with pytest.raises(RequirementError, match=r"no route to 203\.0\.113\.1"):
        way("lab-own-kernel", "203.0.113.1")


def test_what_the_kernel_agreed_on_is_said() -> None:
    (only,) = way("lab-own-kernel", "192.0.2.9").steps
    assert only.found.agreed["drivers"] == "rfc4106-gcm-aesni"
    assert only.found.proposal is not None and only.found.proposal.encrypts
    # ESP in UDP is known by its ports, and IKE is none of it.
    frames = way("lab-own-kernel", "10.77.0.5").steps[0].found.frames
    assert isinstance(frames, EspFrames) and frames.udp_ports == (4500, 4500)
    ports = "src port 4500 and dst port 4500"
    assert frames.sample(64) == f"(udp and {ports} and udp[8:4] != 0 and udp[12:4] & 0x3f = 0)"
    header = bytes([0x45]) + bytes(8) + bytes([17]) + bytes(10) + 2 * (4500).to_bytes(2, "big") + bytes(4)
    esp = (0x97).to_bytes(4, "big") + (128).to_bytes(4, "big") + bytes(32)
    assert frames.number(ETHERTYPE_IPV4, header + esp) == (0x97, 128)
    assert frames.number(ETHERTYPE_IPV4, header + bytes(4) + esp) is None


def portal(address: str, iface: str, own: str) -> LinkPath:
    profile = LinkProfile(name="way", title="way", emulated=False, interface=iface, portal=address)
    near: dict[str, Any] = {"initiator": recorded("lab-own-kernel"), "initiator_iface": iface}
    near |= {"initiator_address": own, "profile": profile, "is_shared": True}
    return link_path(World(), 0, target=BlackBoxHost(), target_iface="", target_address=address, **near)


def test_a_tunnel_s_own_counters_are_what_it_carried() -> None:
    class Counting(RecordedHost):
        def read_files(self, paths: Sequence[str]) -> list[str]:
            assert list(paths) == ["/proc/net/dev", "/proc/net/snmp"]
            return [f"\n\ntun0: 1000 10 {'0 ' * 6}300 3 {'0 ' * 6}\n", ""]

    path = dataclasses.replace(portal("10.0.0.1", "tun0", "10.0.0.2"), initiator=Counting("i", said={}))
    below = dataclasses.replace(path, initiator_iface="eth0")
    (end,) = tunnel.TunnelLayer(below=below, inner=path).look()
    assert (end.tally.into.bytes, end.tally.out.bytes) == (1000, 300)
    assert not tunnel.TunnelLayer(below=below, inner=path).counts_segments


def judged(
    hidden: Layer | None = None, *, carried: int = 1 << 20, in_clear: int = 0, segments: int = 1000
) -> tuple[Proof, list[str]]:
    """A cell that read a MiB through a tunnel of a program's, or through a ``hidden`` protection."""
    path = portal("10.0.0.1", "tun0", "10.0.0.2")
    below = dataclasses.replace(path, initiator_iface="eth0")
    layer: Layer = hidden or tunnel.TunnelLayer(below=below, inner=path)
    ports = frozenset({40000})
    # A tunnel may take 44 segments of TCP as one packet.
    packets = segments // 44 if hidden is None else segments
    before = EndCounters(segments=Segments(ports=ports, sent=0, received=0))
    after = EndCounters(
        traffic=InterfaceCounters(rx_bytes=2 << 20),
        tally=Tally(into=Carried(packets=packets, bytes=carried), out=Carried(packets=10_000)),
        segments=Segments(ports=ports, sent=0, received=segments),
    )
    capture = Capture(taps=(), one_in=64)
    is_hidden = hidden is not None
    watched = CapturedLayer(path=below, capture=capture, layer=layer, portal=path, is_hidden=is_hidden)
    seen = [Seen(cleartext=in_clear)]
    return proof.judge(watched, (before,), (after,), seen, read_bytes=1 << 20, write_bytes=0)


def test_a_tunnel_that_nobody_counts_is_proved_by_its_bytes_and_the_capture() -> None:
    found, reasons = judged()
    assert (
        not reasons and found.at_one_end and (found.packets_expected, found.protected_bytes) == (0, 1 << 20)
    )
    _, (less,) = judged(carried=1000)
    assert "the tunnel carried only 1000 to the initiator" in less
    _, (clear,) = judged(in_clear=3)
    assert clear == "3 cleartext segments of the portal were on the link"


def device(name: str, kind: str, **data: object) -> dict[str, object]:
    info = {"linkinfo": {"info_kind": kind, "info_data": data}} if kind else {}
    return {"ifname": name, "flags": ["UP", "LOWER_UP"], "link_type": "none", **info, "addr_info": []}


def documented(
    address: str, routed: Mapping[str, object], *devices: dict[str, object], **more: str
) -> RecordedHost:
    route = [{"dst": address, "flags": [], "uid": 0, "cache": [], **routed}]
    default = [{"dst": "default", "gateway": "10.0.2.1", "dev": "eth0"}]
    said = {
        "ip -d -j address": json.dumps([device("eth0", ""), *devices]),
        f"ip -d -j route get {address}": json.dumps(route),
        "ip -d -j route show default": json.dumps(default),
    }
    said |= {f"sh -c {tunnel.OWNER} sh {name}": f"{program}\n" for name, program in more.items()}
    return RecordedHost("initiator", said=said)


def through_tunnel(name: str, kind: str, **owner: str) -> FoundProtection:
    routed = {"dev": name, "table": "52", "prefsrc": "100.86.4.17"}
    host = documented("10.0.0.1", routed, device(name, kind, type="tun", pi=False), **owner)
    return pre_existing.protection_to(host, "10.0.0.1", 3260)


def test_tunnels_of_programs_have_their_name_and_no_kind() -> None:
    for found, title in (
        # Its process may be in a container.
        (through_tunnel("tailscale0", "tun"), "Tailscale (WireGuard in user space)"),
        (through_tunnel("tailscale0", "tun", tailscale0="tailscaled"), "Tailscale (WireGuard in user space)"),
        (through_tunnel("ztmjfbsomh", "tun"), "ZeroTier"),
        (through_tunnel("tun0", "tun", tun0="openvpn"), "OpenVPN"),
        (through_tunnel("tun0", "ovpn-dco"), "OpenVPN (in the kernel)"),
        (through_tunnel("wg0", "tun", wg0="wireguard-go"), "WireGuard in user space"),
    ):
        (step,) = found.steps
        assert found.names == ("tunnel",) and step.found.agreed["tunnel"] == title
        assert step.below is not None and step.below.device.name == "eth0" and not step.found.peer
    # One of a program that is not known or a bare interface protects nothing.
    found = through_tunnel("tun0", "tun", tun0="slirp4netns")
    assert not found.steps and found.notes == ("tun0 is a tunnel of an unknown program",)
    found = pre_existing.protection_to(
        documented("10.0.0.1", {"dev": "eth0", "prefsrc": "10.0.2.15"}), "10.0.0.1", 3260
    )
    assert not found.steps and not found.notes
    assert [each.name for each in kinds.every() if each.recognise(found.leg)] == []


def test_an_interface_of_ipsec_takes_the_policies_of_its_number() -> None:
    routed = {"dev": "ipsec0", "prefsrc": "10.2.0.1"}
    host = documented("10.3.0.9", routed, device("ipsec0", "xfrm", if_id="0x2a"))
    request = {"do": "associations", "reqid": 4, "peer": "198.51.100.7"}
    state = association(1, "10.0.2.15", "198.51.100.7", 0, mode="tunnel", cipher_bits=(288,))
    policy = "src 0.0.0.0/0 dst 0.0.0.0/0 \n\tdir out priority 399999 ptype main \n"
    template = "\ttmpl src 10.0.2.15 dst 198.51.100.7\n\t\tproto esp spi 0xc1 reqid 4 mode tunnel\n"
    outer = [{"dst": "198.51.100.7", "gateway": "10.0.2.1", "dev": "eth0", "prefsrc": "10.0.2.15"}]
    said = {
        **host.said,
        json.dumps(request, separators=(",", ":")): json.dumps({"states": [msgspec.to_builtins(state)]}),
        "ip -d -j route get 198.51.100.7": json.dumps(outer),
    }
    for number, names in (("0x2a", ("aes256gcm16",)), ("0x2b", ())):
        policies = {"ip xfrm policy list": f"{policy}{template}\tif_id {number}\n"}
        found = pre_existing.protection_to(
            RecordedHost("initiator", said={**said, **policies}), "10.3.0.9", 3260
        )
        assert found.names == names
