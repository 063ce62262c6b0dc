"""MACsec (IEEE Std 802.1AE-2018): an interface of the kernel's at both ends of a link, over Ethernet.

Keys are made for the run. Either they are static: one for each direction, given to the two kernels by ip(8)
(ip-macsec(8)) on its standard input. Or the ends agree on them (``mka``). It takes Ethernet from end to end:
switches pass it on, routers do not. With static keys it needs nothing but iproute2 and the module ``macsec``.

A killed run leaves the interface, which takes its keys, addresses and routes along, and the fail-closed
policies.
"""

from __future__ import annotations

import contextlib
import secrets
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from harness.hosts import Host
from harness.hosts.faults import Stopped
from harness.hosts.journal import Breaks, Resource
from harness.model import ENDS, End
from harness.model.errors import CommandFailed, RequirementError
from harness.model.protections import PROTECTIONS
from harness.network import links
from harness.network.links import LinkPath
from harness.parse import proc_crypto
from harness.protection import layer, overlay
from harness.protection.kind import Found, Leg, Protection, Underlay
from harness.protection.layer import HEADER_BYTES
from harness.protection.macsec import mka
from harness.protection.overlay import Overlay
from harness.protection.xfrm_listener import ListenerReport

MACSEC, MACSEC_MKA = "macsec", "macsec-mka"

ETHERTYPE = 0x88E5
"""802.1AE, table 9-1."""

CIPHERS = {"gcm-aes-128": (16, 0x0080020001000001), "gcm-aes-256": (32, 0x0080C20001000002)}
"""By ip-macsec(8)'s name: bytes of a key, and the number that Linux reports: the one of 802.1AE, table 14-1,
but for AES-128, where Linux kept an older one (MACSEC_DEFAULT_CIPHER_ID in linux/if_macsec.h)."""

KERNEL_ALGORITHM = "gcm(aes)"
"""/proc/crypto's name of both (macsec_alloc_tfm() in drivers/net/macsec.c)."""

KEY_ID = "01"


def channel_port(path: LinkPath) -> int:
    """The port of a path's secure channels (802.1AE, clause 7.1.2). Real interfaces have several paths, and
    their kernel takes each address and port once."""
    return path.index + 1


def _macs(path: LinkPath) -> tuple[str, str]:
    """Those of the interfaces at both ends, the initiator's first."""
    near, far = (_mac(host, iface) for _, host, iface, _, _ in links.ends(path))
    return near, far


def _mac(host: Host, iface: str) -> str:
    # Not from sysfs, which shows the network namespace that it was mounted in.
    (entries,) = msgspec.json.decode(host.run(["ip", "-json", "link", "show", "dev", iface]).stdout)
    return str(entries["address"])


@dataclass(kw_only=True)
class StaticKeys:
    """A key for each direction, made for that; ``macs`` as in ``MacsecFrames``."""

    within: LinkPath
    cipher: str
    macs: tuple[str, str]

    def __post_init__(self) -> None:
        self._keys = [self._made() for _ in ENDS]

    def _made(self) -> str:
        return secrets.token_hex(CIPHERS[self.cipher][0])

    def tell(self) -> None:
        """Tell both ends."""
        for end in ENDS:
            self._tell(end, self._sending(end) + self._receiving(end))

    def again(self, macs: tuple[str, str]) -> None:
        """Tell a target that has booted anew, with another key for what it sends: its packet numbers begin
        again, and a number must not meet a key twice (802.1AE, clause 14.5)."""
        gone = f"macsec del {self.within.initiator_iface} {self._channel('initiator')}\n"
        self._keys[1], self.macs = self._made(), macs
        self._tell("target", self._sending("target") + self._receiving("target"))
        self._tell("initiator", gone + self._receiving("initiator"))

    def _tell(self, end: End, lines: str) -> None:
        # On standard input: others may read a process's command line.
        links.ends(self.within)[ENDS.index(end)][1].run(["ip", "-batch", "-"], input=lines)

    def _sending(self, end: End) -> str:
        own = self._keys[ENDS.index(end)]
        return f"macsec add {self.within.initiator_iface} tx sa 0 pn 1 on key {KEY_ID} {own}\n"

    def _channel(self, end: End) -> str:
        return f"rx port {channel_port(self.within)} address {self.macs[1 - ENDS.index(end)]}"

    def _receiving(self, end: End) -> str:
        begins = f"macsec add {self.within.initiator_iface} {self._channel(end)}"
        return f"{begins}\n{begins} sa 0 pn 1 on key {KEY_ID} {self._keys[1 - ENDS.index(end)]}\n"


# On the wire


@dataclass(frozen=True, kw_only=True)
class MacsecFrames(layer.Frames):
    """Frames of one EtherType, numbered by association and packet number (802.1AE, clause 9.3).

    ``macs`` are the addresses of both ends' interfaces, the initiator's first. The target's is "" if there
    may be several.
    """

    macs: tuple[str, str]

    @property
    def own(self) -> str:
        return f"ether proto {ETHERTYPE:#06x}"

    def sample(self, one_in: int) -> str:
        return f"({self.own} and ether[16:4] & {one_in - 1:#x} = 0)"

    def received(self, end: End) -> str:
        peer = self.macs[1 - ENDS.index(end)]
        others = f"ether src {peer}" if peer else f"not ether src {self.macs[ENDS.index(end)]}"
        return f"({self.own} and {others})"

    def number(self, ethertype: int, packet: bytes) -> tuple[int, int] | None:
        if ethertype != ETHERTYPE:
            return None
        tci_an, _, number = struct.unpack_from("!BBI", packet)
        return tci_an & 3, number

    def is_control(self, ethertype: int, _packet: bytes) -> bool:
        return ethertype == mka.ETHERTYPE


# As a kind of protection


@dataclass(frozen=True, kw_only=True)
class MacsecDriver(Overlay):
    """MACsec in a run, with static keys or with those that the ends agree on (``negotiates``)."""

    cipher: str = "gcm-aes-128"
    negotiates: bool = False

    NAME = MACSEC
    ROOM = __package__
    IS_BOUND = True
    SEALED_BYTES = PROTECTIONS[MACSEC].sealed_bytes
    HEADER_BYTES = HEADER_BYTES

    def frames(self, underlay: Underlay) -> MacsecFrames:
        return MacsecFrames(macs=_macs(underlay.below))

    def words(self, path: LinkPath, _end: End) -> tuple[str, ...]:
        if path.profile.hops is not None and path.profile.hops.is_routed:
            raise RequirementError(
                f"MACsec needs one Ethernet from end to end, and {path.profile.name} has routers between",
                hint="leave this link out with --protect macsec, or use a switched one",
            )
        # ip(8) takes the port first.
        return ("port", str(channel_port(path)), "cipher", self.cipher, "encrypt", "on", "validate", "strict")

    def agreed(self, reports: Sequence[ListenerReport], underlay: Underlay) -> dict[str, str]:
        wanted = {"cipher": CIPHERS[self.cipher][1], "is_encrypting": True, "is_strict": True}
        for report in reports:
            found = report.carried.agreed
            if any(found[name] != value for name, value in wanted.items()):
                raise CommandFailed(f"expected MACsec with {self.cipher}, found {found} in a kernel")
        (crypto,) = underlay.below.initiator.read_files(["/proc/crypto"])
        return {
            "algorithm": self.cipher,
            "keys": "MKA" if self.negotiates else "static",
            "drivers": ", ".join(proc_crypto.drivers(crypto, (KERNEL_ALGORITHM,))),
        }

    @contextlib.contextmanager
    def keyed(self, underlay: Underlay, within: LinkPath) -> Iterator[Breaks]:
        below, found = underlay.below, dict[str, tuple[Host, Resource]]()
        with contextlib.ExitStack() as stack:
            if self.negotiates:
                private = self.run.private / f"mka-{below.index}"
                agreement = mka.agreement(below, port=channel_port(below), private=private, logs=underlay.raw)
                server = stack.enter_context(agreement)
                found["key-server-gone"] = below.initiator, Stopped(mka.PROGRAM, server)
            else:
                static = StaticKeys(within=within, cipher=self.cipher, macs=_macs(below))
                static.tell()

                def again() -> None:
                    static.again(_macs(below))
                    overlay.open_end(within, "target")

                stack.enter_context(self.run.journal.each_boot(within.target, again))
            overlay.open_up(within)
            yield lambda: found


def recognise(leg: Leg) -> Found | str | None:
    device = leg.device
    if device.linkinfo.info_kind != MACSEC:
        return None
    reported = device.linkinfo.info_data
    if not (reported.get("protect") and reported.get("encrypt")):
        return f"{device.name} is MACsec that does not encrypt"
    return Found(
        name=MACSEC,
        frames=MacsecFrames(macs=(device.address, "")),
        watch=MacsecDriver.watched,
        below=device.link or "",
        agreed={"algorithm": str(reported.get("cipher_suite", "")).lower(), "interface": device.name},
    )


_INTERFACE = """
ip link add name below type veth peer name other
ip link add link below name above type macsec encrypt on validate strict
"""

OFFERED = (
    Protection(
        name=MACSEC,
        kinds=lambda run: {MACSEC: MacsecDriver(run=run)},
        modules=(MACSEC,),
        recognise=recognise,
        trials=lambda host, _role, _folder: overlay.trial(host, MACSEC, (MACSEC,), _INTERFACE),
    ),
    Protection(
        name=MACSEC_MKA,
        kinds=lambda run: {MACSEC_MKA: MacsecDriver(run=run, negotiates=True)},
        modules=(MACSEC,),
        trials=lambda host, _role, _folder: overlay.trial(
            host, MACSEC_MKA, (MACSEC,), f"{mka.PROGRAM} -v\n{_INTERFACE}"
        ),
    ),
)
