"""Pre-existing tunnels of user-space programs: the encrypting program is known, but nothing counts what it
encrypts.

The kernel shows a device of TUN/TAP and tells whose it is (Documentation/networking/tuntap.rst). Where its
packets go only the program knows, so what is watched below is the interface of the default route. The proof
of such a path has the counters of both interfaces, and a capture that sees nothing of the portal's in clear.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.hosts import Host
from harness.network import interfaces, links
from harness.network.links import LinkPath
from harness.observe.counters import traffic
from harness.protection.kind import Found, Leg, Protection
from harness.protection.layer import Carried, Due, EndCounts, Frames, Layer, Tally

NAME = "tunnel"

PROGRAMS = {
    "tailscaled": "Tailscale (WireGuard in user space)",
    "openvpn": "OpenVPN",
    "zerotier-one": "ZeroTier",
    "nebula": "Nebula",
    "wireguard-go": "WireGuard in user space",
    "boringtun-cli": "WireGuard in user space",
    "netbird": "NetBird (WireGuard in user space)",
    "openconnect": "OpenConnect",
    "charon": "strongSwan in user space",
    "tincd": "tinc",
    "n2n-edge": "n2n",
}
"""By the first 15 characters of a process's name."""

DEVICES = {r"tailscale\d+": "tailscaled", r"zt[a-z0-9]{8}": "zerotier-one", r"nebula\d+": "nebula"}
"""The programs' default device names, for processes that cannot be seen, such as a container's."""

KERNELS_OWN = {"ovpn": "OpenVPN (in the kernel)", "ovpn-dco": "OpenVPN (in the kernel)"}
"""Kinds of interfaces that protect, without counters of what they carried."""

OWNER = """
for file in $(grep -lsx "iff:[[:space:]]*$1" /proc/[0-9]*/fdinfo/*); do
    process=${file%/fdinfo/*}
    cat "$process/comm"
    exit
done
"""


@dataclass(frozen=True, kw_only=True)
class TunnelFrames(Frames):
    """Indistinguishable from other programs' frames."""

    @property
    def own(self) -> str:
        return self.sample(1)

    def sample(self, one_in: int) -> str:
        del one_in
        return "less 0"

    def number(self, ethertype: int, packet: bytes) -> None:
        del ethertype, packet


def title_of(host: Host, device: interfaces.Interface) -> str:
    """What a device's program is called; "" if it is none that is known."""
    kind = device.linkinfo.info_kind
    if kind != "tun":
        return KERNELS_OWN.get(kind, "")
    owner = host.run(["sh", "-c", OWNER, "sh", device.name], check=False).stdout.strip()
    by_name = (name for pattern, name in DEVICES.items() if re.fullmatch(pattern, device.name))
    return PROGRAMS.get(owner or next(by_name, ""), "")


def recognise(leg: Leg) -> Found | str | None:
    device = leg.device
    if device.linkinfo.info_kind not in ("tun", *KERNELS_OWN):
        return None
    title = title_of(leg.host, device)
    if not title:
        return f"{device.name} is a tunnel of an unknown program"
    return Found(
        name=NAME,
        frames=TunnelFrames(),
        watch=_watch,
        below=interfaces.default_interface(leg.host),
        agreed={"tunnel": title, "interface": device.name},
    )


@contextlib.contextmanager
def _watch(below: LinkPath, within: LinkPath, _raw: Path) -> Iterator[TunnelLayer]:
    yield TunnelLayer(below=below, inner=within)


@dataclass(frozen=True, kw_only=True)
class TunnelLayer(Layer):
    """A program's device over ``below``, which carries what the program protects."""

    @property
    def title(self) -> str:
        return "the tunnel"

    @property
    def counts_segments(self) -> bool:
        # It may take super-packets (IFF_VNET_HDR).
        return False

    def look(self) -> tuple[EndCounts, ...]:
        return tuple(self._look(host, iface) for _, host, iface, *_ in links.ends(self.within))

    def _look(self, host: Host, iface: str) -> EndCounts:
        devices, snmp = host.read_files(["/proc/net/dev", "/proc/net/snmp"])
        counted = traffic(devices)[iface]
        return EndCounts(
            before=devices,
            tally=Tally(
                out=Carried(packets=counted.tx_packets, bytes=counted.tx_bytes),
                into=Carried(packets=counted.rx_packets, bytes=counted.rx_bytes),
            ),
            after=devices,
            snmp=snmp,
        )

    def due(self, before: Tally, after: Tally, one_in: int) -> Due:
        del before, after, one_in
        return Due()

    def frame_bytes(self, carried: Carried, fragments: int, header_bytes: int) -> None:
        del carried, fragments, header_bytes


OFFERED = (
    Protection(
        name=NAME,
        kinds=lambda _run: {},
        modules=(),
        trials=lambda _host, _role, _folder: (),
        recognise=recognise,
    ),
)
