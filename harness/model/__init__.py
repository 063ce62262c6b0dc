"""The types that all other modules use, and the schema of everything that is written to ``results/``.

Every field with a quantity has its unit in its name. Bandwidths are derived from ``bytes`` and ``runtime_ns``
and never stored rounded. ``docs/results.md`` describes the files.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from harness.model import kinds
from harness.model.probing import Probe
from harness.model.protections import OFF, PROTECTIONS, has_cipher, protocol
from harness.model.ranges import Amount, Count, Figure, Size
from harness.model.reread import Reread
from harness.model.stalls import Stall
from harness.model.telemetry import BackgroundLoad, Telemetry
from harness.model.texts import (
    AbsolutePath,
    Algorithm,
    Commit,
    CpuCostsId,
    Detail,
    Drivers,
    FilePath,
    FioOption,
    FioValue,
    HopAddress,
    HostName,
    Identity,
    IkeWord,
    InterfaceName,
    IpAddress,
    KernelKey,
    KernelRelease,
    Label,
    Line,
    MachineAddress,
    Name,
    NameOrNone,
    Parameter,
    ParameterValue,
    Portal,
    PortalOrNone,
    Prose,
    RunFile,
    RunId,
    TargetName,
    Title,
    UserName,
    VersionNumber,
)

SCHEMA_VERSION = 6
"""Version of the records below; a reader refuses records of a later version."""


Family = Literal[4, 6]
"""A version of the Internet Protocol."""

IPV4: Family = 4
IPV6: Family = 6

End = Literal["initiator", "target"]
ENDS: tuple[End, End] = ("initiator", "target")
"""The ends of a link, the initiator's first."""


class Status(enum.StrEnum):
    """The result of a cell. The four stay distinct everywhere; only ``ok`` has a figure that counts."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    INVALID = "invalid"


class TestbedKind(enum.StrEnum):
    """Where a run was measured."""

    __test__ = False

    LAB = "lab"
    HOST = "host"
    MACHINES = "machines"


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a testbed is, for all who would otherwise ask which one it is.

    ``typed`` is the option that asks for it. ``boots_kernels``: for the run, and they end with it, so none of
    the user's disks and routers is in it. ``shares_kernel``: its hosts are namespaces of one kernel.
    ``is_users_kernel``: that of the machine where the harness runs, which needs root. ``has_machines``: the
    ends are the user's machines, with interfaces and disks of their own.
    """

    typed: str
    boots_kernels: bool = False
    shares_kernel: bool = False
    is_users_kernel: bool = False
    has_machines: bool = False
    most_initiators: int = 1

    @property
    def boots_one_kernel(self) -> bool:
        """All hosts are in one kernel, which is the run's."""
        return self.boots_kernels and self.shares_kernel


MOST_INITIATORS = 16
"""Machines, or kernels of the lab: a kernel's command line has 2048 bytes (COMMAND_LINE_SIZE of um), and each
initiator takes 45 of the target's."""

LAB_INITIATORS = 64
"""Of the lab with one kernel, where an initiator is a link of its own into the target's namespace."""

CAPABILITIES: Final = {
    (TestbedKind.LAB, False): Capabilities(
        typed="--testbed lab", boots_kernels=True, shares_kernel=True, most_initiators=LAB_INITIATORS
    ),
    (TestbedKind.LAB, True): Capabilities(
        typed="--kernels per-host", boots_kernels=True, most_initiators=MOST_INITIATORS
    ),
    (TestbedKind.HOST, False): Capabilities(typed="--testbed host", shares_kernel=True, is_users_kernel=True),
    (TestbedKind.MACHINES, True): Capabilities(
        typed="--target", has_machines=True, most_initiators=MOST_INITIATORS
    ),
}
"""By the kind of testbed, and whether each of its hosts is a machine, or like one."""


class BackingKind(enum.StrEnum):
    """What the target exports: brd through iblock, a write-through file, or a device of the user's."""

    RAMDISK = "ramdisk"
    FILE = "file"
    BLOCK = "block"


class Duplex(enum.StrEnum):
    FULL = "full"
    HALF = "half"


class IpsecMode(enum.StrEnum):
    """RFC 4301, section 3.2."""

    TRANSPORT = "transport"
    TUNNEL = "tunnel"


class IkeAuth(enum.StrEnum):
    """How the two charons authenticate: by a secret or by certificates, both made for the run."""

    PSK = "psk"
    CERT = "cert"


class LabKernel(enum.StrEnum):
    """Which kernel the lab boots: that of Debian's package user-mode-linux, or one that
    ``harness kernel build`` made."""

    DEBIAN = "debian"
    CUSTOM = "custom"


KERNEL_KEY = re.compile("[0-9a-f]{12}")
"""The name of a kernel's folder in the cache."""


class OtherKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel of the lab's own other than the default: its key in the cache, and its release.

    ``commit`` is the git commit that it was built from (``-dirty``: with local changes), else empty.
    """

    key: KernelKey
    release: KernelRelease
    commit: Commit = ""

    @property
    def name(self) -> str:
        """For records: two kernels that differ in anything have two names, of the same release too."""
        return f"{self.release} {self.key}".rstrip()


class Ciphers(enum.StrEnum):
    """The custom kernel encrypts with the processor's instructions, or by generic code in C."""

    ACCELERATED = "accelerated"
    GENERIC = "generic"


CIPHERS_CLOSED_SINCE = (6, 16)
"""Since that version of Linux the processor's ciphers are in lib/crypto, which is closed to user-mode Linux
(as looked up in 7.2): there are no modules of them for Debian's kernel."""


class Clock(enum.StrEnum):
    """``virtual``: time passes only while everything waits, so processor work takes no time."""

    REAL = "real"
    VIRTUAL = "virtual"


HARNESS_SOURCE = "harness"
"""``Setting.source`` of what a run of the harness measured."""


FIO_SOURCE = "fio"
"""``Setting.source`` of measurements from plain fio outputs."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Where and on what something was measured. Figures of different settings never share a column.

    ``source`` is the measuring tool. ``lab_kernel`` and ``ciphers`` are None outside the lab; ``ciphers``
    also in records of older versions, when Debian's kernel had only generic ones. ``other_kernel`` is the
    lab kernel that the user named, None for the default one. ``disk`` is the name of the modelled disk below
    the target, "" if there is none. ``predicted_from`` is the CPU cost file that gives processor work its
    virtual time ("": such work takes no time): nothing of it was measured.
    """

    testbed: TestbedKind
    source: Name = HARNESS_SOURCE
    clock: Clock = Clock.REAL
    lab_kernel: LabKernel | None = None
    other_kernel: OtherKernel | None = None
    ciphers: Ciphers | None = None
    disk: NameOrNone = ""
    predicted_from: CpuCostsId = ""

    @property
    def is_harness(self) -> bool:
        """Whether a run of the harness measured it."""
        return self.source == HARNESS_SOURCE

    @property
    def is_virtual(self) -> bool:
        """Whether time passed only while everything waited."""
        return self.clock is Clock.VIRTUAL

    @property
    def time(self) -> str:
        """The clock, or what virtual time was predicted from."""
        return f"predicted from {self.predicted_from}" if self.predicted_from else str(self.clock)

    @property
    def is_custom(self) -> bool:
        """Whether the lab booted the custom kernel."""
        return self.lab_kernel is LabKernel.CUSTOM

    @property
    def has_generic(self) -> bool:
        """Whether the processor's instructions for ciphers were not used, although there are some."""
        return self.ciphers is Ciphers.GENERIC

    @property
    def release(self) -> str:
        """The name of the lab's kernel that was asked for by name; empty for the others."""
        return self.other_kernel.name if self.other_kernel is not None else ""

    @property
    def kernel(self) -> str:
        """``custom`` for the custom kernel, with the release of one that was named; empty for Debian's or the
        machine's."""
        return f"{LabKernel.CUSTOM} {self.release}".strip() if self.is_custom else ""

    @property
    def is_plain(self) -> bool:
        """Measured in real time, on Debian's or the machine's kernel, without a modelled disk."""
        return not self.is_virtual and not self.kernel and not self.disk

    @property
    def distinct(self) -> Setting:
        """The same without details that distinguish no columns: the usual ciphers, and a kernel's commit,
        which its key covers."""
        other = self.other_kernel and msgspec.structs.replace(self.other_kernel, commit="")
        ciphers = self.ciphers if self.has_generic else None
        return msgspec.structs.replace(self, other_kernel=other, ciphers=ciphers)

    @property
    def _place(self) -> tuple[str, ...]:
        return (
            *(self.source, self.testbed, self.clock, self.kernel, self.disk),
            *(str(self.has_generic), self.predicted_from),
        )

    def __lt__(self, other: Setting) -> bool:
        """The order in which settings are shown."""
        return self._place < other._place

    @property
    def name(self) -> str:
        """For people: ``lab, custom kernel, real SSD``."""
        if not self.is_harness:
            return f"{self.source} output"
        words = [str(self.testbed)]
        # In virtual time it is the custom one anyway, but not always the same one.
        is_reported = self.is_custom and (self.release or not self.is_virtual) and not self.predicted_from
        words += [f"custom kernel {self.release}".strip()] if is_reported else []
        words += [self.time if self.predicted_from else f"{self.time} time"] if self.is_virtual else []
        words += [self.disk] if self.disk else []
        words += [f"{self.ciphers} ciphers"] if self.has_generic else []
        return ", ".join(words)


class Security(enum.StrEnum):
    """WiFi security: WPA2 with a pre-shared key, WPA3 (SAE, management frames protected), or none."""

    WPA2 = "wpa2"
    WPA3 = "wpa3"
    OPEN = "open"


PROTECTION_OFF = OFF

PRE_EXISTING: Final = "pre-existing"
"""The word for pre-existing protection of the path to a portal, as typed."""

SWANCTL: Final = "swanctl:"
"""As typed, the prefix of a swanctl.conf(5)'s path whose connection protects the path to a portal."""

ISCSI = "iscsi"
TRANSPORTS = {name: each.title for name, each in kinds.TRANSPORTS.items()}
"""Each with its title for people."""


def transport_title(name: str | None) -> str:
    """A transport's title for people; the name of one that is not here, "" of none."""
    return TRANSPORTS.get(name or "", name or "")


KERNEL_TARGETS = tuple(name for name, each in kinds.TRANSPORTS.items() if each.kernel_target)
"""Those whose target is in the kernel, and no program."""

DEFAULT_TRANSPORT = ISCSI

TransportName = Annotated[str, msgspec.Meta(title="a transport", pattern=r"^[a-z][a-z0-9-]{0,31}\Z")]
"""For what is read: also of results of a transport that is not here any more."""

UNENCRYPTED = "not encrypted"
"""Replaces "IPsec" in every table if the ESP proposal does not encrypt."""

IN_CLEAR = frozenset({"ecb(cipher_null)", "rfc4543(gcm(aes))"})
"""/proc/crypto's names of what only authenticates in ESP (RFC 2410, RFC 4543)."""

LINK_LOCAL = "local"

FileSystem = Literal["nfs", "smb", "sshfs", "glusterfs", "ceph", "9p", "afs"]
FILE_SYSTEMS: Mapping[str, str] = {
    "nfs": "NFS",
    "smb": "SMB",
    "sshfs": "SSHFS",
    "glusterfs": "GlusterFS",
    "ceph": "CephFS",
    "9p": "9P",
    "afs": "AFS",
}
"""File systems whose storage is another machine's, by the names of their columns: their titles for people."""

AS_PROGRAMS_SAY = frozenset(name for name, each in PROTECTIONS.items() if not each.is_known)
"""Protections that may or may not encrypt: OpenVPN does not with ``cipher none``, n2n not without a key."""

Agreed = Mapping[str, Mapping[str, str]]
"""What the two ends negotiated, for each protection by its name, in that protection's own terms."""

Standard = Literal["802.11n", "802.11ac", "802.11ax"]


HopKindName = Annotated[str, msgspec.Meta(title="a kind of hops", pattern=r"^[a-z][a-z0-9-]{0,31}\Z")]
"""For what is read: also of results of a kind that is not here any more."""


class OpenFlow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an OpenFlow switch forwards: by flows that its controller installs, or by asking the controller for
    each packet.

    ``rate_bit_s`` (None: unshaped) and ``delay_us`` (each way) are those of the controller's own link, the
    profile ``controller``. ``packet_us`` is the switch processor's time for a packet that goes to the
    controller, and ``cpu_percent`` its share of that processor; None: it takes no time.
    """

    controller: Name
    flows: bool = False
    rate_bit_s: int | None = None
    delay_us: float = 0.0
    frame_overhead_bytes: int = 24
    cpu_percent: int | None = None
    packet_us: float = 0.0


class PppAuth(enum.StrEnum):
    """How a PPPoE client authenticates: RFC 1994, or RFC 1334, which sends the secret itself."""

    CHAP = "chap"
    PAP = "pap"


class Hops(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The hops between the ends of a link: ``count`` of them, between ``least`` and ``most``.

    Each receives a whole packet before it sends it on at the link's rate, and adds ``delay_us``. ``auth`` is
    for PPPoE only; None means CHAP.
    """

    kind: HopKindName
    count: int
    least: int
    most: int
    delay_us: float = 0.0
    openflow: OpenFlow | None = None
    auth: PppAuth | None = None

    @property
    def is_routed(self) -> bool:
        """Whether each segment is a network of its own; not known of a kind that is not here."""
        return self.kind in kinds.HOPS and kinds.HOPS[self.kind].is_routed

    @property
    def is_timed(self) -> bool:
        """Whether the profile says how long each hop takes."""
        return self.kind in kinds.HOPS and kinds.HOPS[self.kind].is_timed


class LinkProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A link as data (``profiles/links/*.toml``).

    ``rate_bit_s`` is the rate on the medium, shared by both directions if ``duplex`` is half; None means
    unshaped. ``delay_us``, ``jitter_us`` and ``loss_percent`` apply to each direction.
    ``frame_overhead_bytes`` is what a frame occupies on the medium beyond its Ethernet header and payload (24
    for Ethernet: FCS 4, preamble and SFD 8, inter-frame gap 12). ``tcp_window_bytes`` is the most that TCP
    may have in flight in each direction; None: the hosts decide. ``queue_packets`` is how many packets wait
    for the medium in each direction before further ones are lost; None: no limit is met. ``radio``: real
    802.11 of that standard (``harness.network.air``) if the lab has its own kernel. ``hops``: it is a
    row of such segments (``harness.network.paths``); delay, jitter and loss then apply to the whole row, and
    each hop adds its own delay.

    With ``interface`` it is not a profile but a real link: the initiator's network interface of that name, as
    it is, to the target's address ``portal`` (None: the one in the interface's network).

    ``base`` is the link of which it is a point in a sweep, by its name; "" for all others. ``family`` is
    written only where it is IPv6's, as ``ip``: without it a link is what it was before there were two.
    """

    name: Name
    title: Title
    emulated: bool
    description: Detail = ""
    source: Detail = ""
    rate_bit_s: int | None = None
    delay_us: float = 0.0
    jitter_us: float = 0.0
    loss_percent: float = 0.0
    mtu_bytes: int = 1500
    duplex: Duplex = Duplex.FULL
    frame_overhead_bytes: int = 24
    tcp_window_bytes: int | None = None
    queue_packets: int | None = None
    radio: Standard | None = None
    hops: Hops | None = None
    interface: InterfaceName | None = None
    portal: IpAddress | None = None
    base: NameOrNone = ""
    family: Literal[6] | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="ip")

    @property
    def ip(self) -> Family:
        """The version of IP that its packets have."""
        return IPV4 if self.family is msgspec.UNSET else IPV6

    @property
    def path_delay_us(self) -> float:
        """The delay from end to end, each way, without the time to send."""
        return self.delay_us + (self.hops.count * self.hops.delay_us if self.hops is not None else 0.0)


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An ESP proposal as data (``ipsec/*.toml``), in strongSwan's syntax.

    ``kernel_algorithms`` are the /proc/crypto names that the kernel must use. ``encrypts`` is false exactly
    if one of them only authenticates: ecb(cipher_null) or rfc4543(gcm(aes)). ``charon_plugins`` are
    the plugins beyond charon's base list. ``segmentation_offload``: TCP and ESP hand each other super-packets
    (``harness/protection/ipsec/offload.py``). ``settings`` are further ones of both ends' connection and of
    their charon, in the words of swanctl.conf(5) and strongswan.conf(5).
    """

    name: Name
    title: Title
    esp: IkeWord
    ike: IkeWord
    kernel_algorithms: tuple[Algorithm, ...]
    encrypts: bool = True
    description: Detail = ""
    charon_plugins: tuple[IkeWord, ...] = ()
    segmentation_offload: bool = False
    settings: dict[IkeWord, IkeWord] = {}


class Flash(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A disk of ``pages_at_once`` chips, each of which reads or writes ``page_bytes`` in ``page_us``.

    So one small command takes ``page_us``, and the whole disk moves pages_at_once * page_bytes in that time.
    """

    page_bytes: int
    page_us: float
    pages_at_once: int


class MovingParts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An arm and a platter. ``average_seek_us`` is the mean over all pairs of places on the disk.

    ``rate_bytes_s`` is the media rate in the volume's zone, at the beginning of the disk. ``capacity_bytes``
    is the whole disk's; the volume is a part of it.
    """

    rpm: int
    rate_bytes_s: int
    command_us: float
    track_seek_us: float
    average_seek_us: float
    capacity_bytes: int
    read_ahead_bytes: int


class DiskProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A disk as data (``profiles/disks/*.toml``).

    With neither ``flash`` nor ``moving`` it is memory with zero access time.
    """

    name: Name
    title: Title
    description: Detail = ""
    source: Detail = ""
    flash: Flash | None = None
    moving: MovingParts | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One section of a fio job file: its name, and the merged options of [global] and section."""

    name: Name
    options: tuple[tuple[FioOption, FioValue | None], ...]


def block_word(size_bytes: int) -> str:
    """The size of a block in a workload's name: ``4k``, ``1m``, ``512``."""
    for unit, word in ((1 << 20, "m"), (1 << 10, "k")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{word}"
    return str(size_bytes)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What a job does, by its name and in numbers; None where neither its options nor fio's report say it.

    ``depth`` is how many I/Os each of its ``numjobs`` fio jobs keeps in flight. ``rate_bytes_s`` is each
    job's limit; None: no limit. With ``rate_iops``, requests are issued at this rate at random times whether
    or not earlier ones completed (an open loop), and latency counts from these times.
    """

    name: Name
    direction: Literal["read", "write", "both"] | None = None
    pattern: Literal["sequential", "random"] | None = None
    block_bytes: Size | None = None
    depth: Size | None = None
    numjobs: Size | None = None
    rate_bytes_s: Size | None = None
    rate_iops: Size | None = None

    @property
    def in_flight(self) -> int | None:
        """How many I/Os all jobs together keep in flight."""
        return None if self.depth is None else self.depth * (self.numjobs or 1)

    @property
    def base(self) -> str:
        """Its name without its own numbers, ``rand-read`` for ``rand-read-4k-qd16``: what the points of a
        curve have in common."""
        own = {f"qd{self.depth}", f"j{self.numjobs}", f"{self.rate_iops}iops"}
        if self.block_bytes is not None:
            own.add(block_word(self.block_bytes))
        return "-".join(word for word in self.name.split("-") if word not in own) or self.name


class Column(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One column of the matrix: a link, its protections, its transport, how many initiators use it at once,
    its version of IP, and ESP's mode.

    ``link`` is the link's name, or local for the initiator's own disk, or the file system of another machine
    that was measured (nfs, smb, sshfs, glusterfs, ceph, 9p, afs). ``protection`` names the protections, the
    outermost on the wire first; it is empty without any. ``transport`` is how the target's storage becomes a
    disk of the initiator's; None for the local disk and for file systems. ``initiators`` is how many measure
    at once; the figures are their totals. ``ip`` is the version of IP. ``mode`` is ESP's; None without ESP.
    """

    link: Name
    protection: tuple[Name, ...] = ()
    transport: TransportName | None = DEFAULT_TRANSPORT
    initiators: Count = 1
    ip: Family = IPV4
    mode: IpsecMode | None = None

    def __post_init__(self) -> None:
        if self.link == LINK_LOCAL:
            msgspec.structs.force_setattr(self, "transport", None)
        mode = (self.mode or IpsecMode.TRANSPORT) if self.protection and self.has_ipsec else None
        if mode is not self.mode:
            msgspec.structs.force_setattr(self, "mode", mode)

    @property
    def is_local(self) -> bool:
        """Whether it is the initiator's own storage, without a network."""
        return self.link == LINK_LOCAL

    @property
    def has_path(self) -> bool:
        """Whether its I/Os take a link and a session of the run's."""
        return self.transport is not None

    @property
    def filesystem(self) -> str:
        """The file system of another machine that it is, for people; empty if it is none."""
        return "" if self.has_path else FILE_SYSTEMS.get(self.link, "")

    @property
    def bare(self) -> Column:
        """The same without protection."""
        return msgspec.structs.replace(self, protection=())

    @property
    def ipsec(self) -> str:
        """The ESP proposal among its protections; ``off`` if there is none."""
        return next((name for name in self.protection if name not in PROTECTIONS), PROTECTION_OFF)

    @property
    def has_ipsec(self) -> bool:
        """Whether one of its protections is a proposal for ESP."""
        return self.ipsec != PROTECTION_OFF

    @property
    def label(self) -> str:
        """Name for people and for files: ``wifi``, ``wifi+aes128gcm16``, ``wired+macsec.nvme-tcp.x2``."""
        name = "+".join((self.link, *self.protection))
        if self.transport not in (None, DEFAULT_TRANSPORT):
            name += f".{self.transport}"
        return name if self.initiators == 1 else f"{name}.x{self.initiators}"

    @property
    def title(self) -> str:
        """Its protections, for people: ``IPsec aes128gcm16``, ``MACsec + WireGuard``; empty without any."""
        return " + ".join(
            PROTECTIONS[name].title if name in PROTECTIONS else f"IPsec {name}" for name in self.protection
        )

    @property
    def has_known_cipher(self) -> bool:
        """Whether its protection is known to encrypt or not, unlike a program's tunnel."""
        return not AS_PROGRAMS_SAY.issuperset(self.protection)

    @property
    def has_cipher(self) -> bool:
        """Whether one of its protections costs the work of a cipher or a check."""
        return any(map(has_cipher, self.protection))

    @property
    def framed(self) -> str:
        """The protocols that frame its packets: ``ESP``, ``MACsec and WireGuard``."""
        return " and ".join(protocol(name) for name in self.protection)

    @property
    def needs_custom_kernel(self) -> bool:
        """Whether Debian's user-mode kernel lacks what it takes."""
        names = [name for name in (self.transport, *self.protection) if name is not None]
        declared = {**kinds.TRANSPORTS, **PROTECTIONS}
        return any(declared[name].needs_custom_kernel for name in names if name in declared)

    def shown(self, *, is_unencrypted: bool) -> str:
        """The label for people; it says if ESP leaves the data readable."""
        return f"{self.label} ({UNENCRYPTED})" if is_unencrypted else self.label


def drivers(agreed: Agreed) -> str:
    """The kernel's drivers of all protections that encrypt; empty if they are unknown."""
    return ", ".join(each["drivers"] for each in agreed.values() if each.get("drivers"))


def is_unencrypted(encrypts: bool | None, agreed: Agreed) -> bool:
    """Whether protection leaves data readable: by the algorithms that the kernels agreed on, and only where
    these are unknown by a record's ``encrypts``."""
    algorithms = [each.get("algorithm", "") for each in agreed.values()]
    if not algorithms or not all(algorithms):
        return encrypts is False
    return all(IN_CLEAR.intersection(names.split(" + ")) for names in algorithms)


class Backing(msgspec.Struct, frozen=True, kw_only=True):
    """The storage behind the target. ``path`` is the user's file or device; None: made for the run.

    ``destroy`` is the user's typed consent to overwrite a device. On storage that existed before,
    measurements start at ``offset_bytes``.
    """

    kind: BackingKind
    size_bytes: int
    offset_bytes: int = 0
    path: AbsolutePath | None = None
    destroy: Identity | None = None

    @property
    def end_bytes(self) -> int:
        """Where the part ends that is measured."""
        return self.offset_bytes + self.size_bytes


class BlackBoxTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A black-box target: only its portal is known (RFC 7143, section 3), and nothing of the harness runs
    there. The run measures the logical unit ``lun`` of the target ``name`` (an IQN), unchanged.

    ``typed`` is the portal as the user typed it; ``address`` and ``port`` are where the connection goes, and
    ``login`` is where to log in, if the target redirects. ``wwid`` is the LUN's identifier in the initiator's
    kernel, "" if there is none. ``chap_user`` is the CHAP user name ("": no CHAP); plans never have the
    secret. Protected columns use protection that is already there, or the connection in the file ``swanctl``
    (``#CHILD`` names its child).
    """

    transport: TransportName
    typed: Portal
    address: IpAddress
    port: int
    login: PortalOrNone = ""
    name: TargetName
    lun: int = 0
    wwid: Identity = ""
    chap_user: UserName = ""
    swanctl: FilePath = ""

    @property
    def is_export(self) -> bool:
        """Whether the portal alone names it, with no LUN, because it is typed with its export."""
        kind = kinds.TRANSPORTS.get(self.transport)
        return kind is not None and not kind.logical_units

    @property
    def unit(self) -> str:
        """The name of the logical unit, as consent to write to it repeats it."""
        return self.name or self.typed if self.is_export else f"{self.name}:{self.lun}"

    @property
    def identified_by(self) -> tuple[str, ...]:
        """The file of ``wwid`` in the folder of its disk; none if nothing identifies it."""
        if not self.wwid:
            return ()
        return ("device/wwid" if self.transport == ISCSI else "wwid",)


class AttachedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that is already attached to the initiator: a block device or a file at ``path``; ``title``
    says what attached it. ``identity`` is its identifier in the kernel, "" if there is none; an
    ``is_new`` file is made for the run and removed again; everything else is only read, unless the user
    consents to overwriting it. ``filesystem`` is the type of a network file system below the file."""

    path: AbsolutePath
    title: Detail
    identity: Identity = ""
    is_new: bool = False
    filesystem: FileSystem | None = None

    @property
    def column(self) -> Column:
        """The one that measures it."""
        return Column(self.filesystem or LINK_LOCAL, transport=None)


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured: the target's storage, and the initiator's own.

    ``disk`` is the modelled disk that replaces ``backing``, which then only has the size. ``local_device`` is
    a disk of the initiator's, which the column ``local`` measures instead of the target's storage. With
    ``shared_lun`` all initiators read one LUN. With ``black_box`` it is a LUN that is there, and ``backing``
    is a block device without a path: the part of it that is measured. So it is with ``volume``, the one
    column of a run that has no target.
    """

    backing: Backing
    disk: DiskProfile | None = None
    local_device: Backing | None = None
    shared_lun: bool = False
    black_box: BlackBoxTarget | None = None
    volume: AttachedVolume | None = None

    def is_memory(self, link: str) -> bool:
        """Whether what is behind a link is a ramdisk: no disk, nor the model of one."""
        backing = (self.local_device if link == LINK_LOCAL else None) or self.backing
        return self.disk is None and backing.kind is BackingKind.RAMDISK


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """Real machines: ``local`` or ``ssh://[USER@]HOST[:PORT]`` for each; see ``parse.hosts``. Without
    ``target`` there is no target, or only its portal is known (``Storage.black_box``)."""

    target: MachineAddress | None
    initiators: tuple[MachineAddress, ...]


class Cell(msgspec.Struct, frozen=True, order=True):
    """One measurement to make: a workload on a column, in its ``repeat``-th repeat (from 1)."""

    column: Column
    workload: str
    repeat: int

    @property
    def key(self) -> str:
        """File name stem of the cell's record, unique in its run."""
        return f"{self.column.label}.{self.workload}.r{self.repeat}"


class StoppingRule(msgspec.Struct, frozen=True, kw_only=True):
    """When a cell has been measured often enough.

    ``width``: how far both ends of the value's interval may be from the median, as a part of it (0.05: 5 %).
    ``max_s`` is the time of all cells of the run together, by the clock of the measurement.
    """

    width: float
    max_repeats: int
    max_s: float | None = None


SimulatedCpuCosts = tuple[Annotated[int, msgspec.Meta(ge=0, lt=2**32)], ...]
"""What the custom kernel takes for its operations, in ps and in the order of ``charge.patch``."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run needs, resolved: nothing is looked up again inside the testbed.

    Each cell is measured ``repeats`` times; with ``stop`` that is the least, and it is repeated until the
    rule is met. ``cells`` are the only ones of columns and workloads that it has, if any are named.
    ``sections`` are what questions add (``results.sections``), by their names. A disturbed cell is measured
    again up to ``retries`` times. ``runtime_s`` overrides how long each of the
    ``jobs`` of the ``profile`` measures.
    ``seed`` is that of the order of cells and of fio's random numbers. ``machines`` are real ones, or the
    lab's hosts with a kernel each. ``links``, ``proposals`` and disks have the fields of their files.

    ``probes``: round trips, processors and interfaces are measured with each cell, and TCP once per column.
    Without ``probes_paths`` no TCP is, nor round trips of emulated links. With ``probing`` the run makes
    these probes, each on every column, and measures no workload. ``notes`` say what of the user's job file
    was replaced or left out. ``wifi_security`` protects links with simulated radios. ``parameters`` are
    those of sessions that were asked for (``parse.parameters``), by transport. ``hops`` are the addresses, as
    in ``machines`` or by SNMP, of what is between the ends and whose counters the run reads.
    ``simulated_cpu_costs`` are the CPU costs of virtual time, for each column by its label, and for each
    end's kernel and workload: ``both rand-read-4k`` if that is one kernel. ``overrides`` are the files of the
    user's that were taken in place of shipped ones: ``proposal aes128gcm16: ipsec/aes128gcm16.toml``.
    """

    run_id: RunId
    setting: Setting
    columns: tuple[Column, ...]
    jobs: tuple[Job, ...]
    repeats: int
    seed: int
    storage: Storage
    links: dict[Name, LinkProfile]
    proposals: dict[Name, Proposal]
    ike_auth: IkeAuth = IkeAuth.PSK
    machines: Machines | None = None
    hops: tuple[HopAddress, ...] = ()
    wifi_security: Security = Security.WPA2
    parameters: dict[TransportName, dict[Parameter, ParameterValue]] = {}
    probes: bool = False
    probes_paths: bool = True
    probing: tuple[Probe, ...] = ()
    profile: FilePath = "basic"
    notes: tuple[Prose, ...] = ()
    overrides: tuple[Prose, ...] = ()
    runtime_s: float | None = None
    stop: StoppingRule | None = None
    sections: dict[Name, dict[Name, Any]] = {}
    cells: tuple[tuple[Column, Name], ...] = ()
    simulated_cpu_costs: dict[Label, dict[Line, SimulatedCpuCosts]] = {}
    retries: int = 2
    created_unix_s: float = 0.0
    harness_version: VersionNumber = ""
    schema: int = SCHEMA_VERSION

    @property
    def tag(self) -> str:
        """The run's short id: it is part of the name of everything that a run brings up."""
        return self.run_id.rpartition("-")[2]

    @property
    def transports(self) -> tuple[str, ...]:
        """The transports of its columns, in the columns' order."""
        found = (column.transport for column in self.columns)
        return tuple(dict.fromkeys(name for name in found if name is not None))

    @property
    def places(self) -> tuple[tuple[Column, str], ...]:
        """The cells that it may measure, column by column."""
        places = ((column, job.name) for column in self.columns for job in self.jobs)
        return tuple(place for place in places if place in {*self.cells}) if self.cells else tuple(places)

    def parameters_of(self, transport: str) -> dict[str, str]:
        """The parameters on which the ends of every session of a transport must agree."""
        return self.parameters.get(transport, {})

    @property
    def capabilities(self) -> Capabilities:
        """What its testbed is. KeyError if its kind has no machines and the plan has, or the other way."""
        return CAPABILITIES[self.setting.testbed, self.machines is not None]

    @property
    def sees_target(self) -> bool:
        """Whether the target is a host of the run. If not, only its portal is known, or there is none."""
        return self.storage.black_box is None and self.storage.volume is None

    @property
    def only_reads(self) -> bool:
        """Whether what it measures was there, and stays as it is."""
        volume, consent = self.storage.volume, self.storage.backing.destroy
        return not (self.sees_target or consent is not None or (volume is not None and volume.is_new))

    @property
    def ipsec_mode(self) -> IpsecMode:
        """ESP's, which is that of all its columns."""
        return next((column.mode for column in self.columns if column.mode), IpsecMode.TRANSPORT)

    def encrypts(self, column: Column) -> bool | None:
        """Whether a column's protections encrypt; None without any, and where that is a program's secret."""
        known = [name for name in column.protection if name not in AS_PROGRAMS_SAY]
        found = [self.proposals.get(name) or PROTECTIONS.get(name) for name in known]
        if any(each is None or each.encrypts for each in found):
            return True
        return False if known == [*column.protection] and known else None

    def shown(self, column: Column) -> str:
        """The name of a column for people."""
        return column.shown(is_unencrypted=self.encrypts(column) is False)

    @property
    def speaks_ipv6(self) -> bool:
        """Whether one of its links does."""
        return any(link.ip == IPV6 for link in self.links.values())

    def has_radio(self, link: LinkProfile | None) -> bool:
        """Whether a link is 802.11 over simulated radios: only the custom kernel has them."""
        return link is not None and link.radio is not None and self.setting.is_custom


LATENCIES: Final = {"mean": "mean_ns", "p50": "p50_ns", "p99": "p99_ns", "p99.9": "p99_9_ns"}
"""What a latency goal may be of (``texts.Percentile``), with the field of ``Latency`` that says it."""

COMPLETION: Final = "clat"
PER_JOB: Final = "per-job"
"""Of which latency percentiles are, if not of total latency: see ``Latency``."""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Latency of completed I/Os, submission to completion; what fio did not report is None.

    ``percentiles`` is written only if they are not those of total latency: ``clat`` if they exclude
    submission time, ``per-job`` if fio reported them for several jobs, without histograms to merge.
    """

    mean_ns: Amount | None = None
    min_ns: Amount | None = None
    max_ns: Amount | None = None
    stddev_ns: Amount | None = None
    p50_ns: Amount | None = None
    p99_ns: Amount | None = None
    p99_9_ns: Amount | None = None
    percentiles: Literal["clat", "per-job"] | msgspec.UnsetType = msgspec.UNSET


class Io(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of one measurement: bytes and I/Os completed within ``runtime_ns``."""

    bytes: Count
    ios: Count
    runtime_ns: Count
    latency: Latency

    @property
    def bytes_per_s(self) -> float:
        return self.bytes * 1e9 / self.runtime_ns if self.runtime_ns else 0.0

    @property
    def iops(self) -> float:
        return self.ios * 1e9 / self.runtime_ns if self.runtime_ns else 0.0


class AirProof(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence that a cell's bytes went through the air, protected as its network says.

    ``station_bytes_initiator`` and ``station_bytes_target`` are what each end's 802.11 stack counted for the
    other one, both directions added up. A monitoring radio heard ``protected_frames_sampled`` encrypted data
    frames (it keeps one in ``sampling``) and ``clear_frames`` others (it checks all).
    """

    key_management: Drivers
    cipher: Drivers
    station_bytes_initiator: Count
    station_bytes_target: Count
    protected_frames_sampled: Count
    clear_frames: Count
    sampling: Count


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence that a cell's bytes took the path its column names.

    Counters are differences over the cell, and those of interfaces are the link's, both directions added
    up. ``protected_bytes`` is what the protection carried in both directions, by the counters of the end
    that counted less; of several protections, the one that carried least. ``cleartext_segments`` counts
    TCP segments of the portal that a capture on the link saw outside the protection; without IPsec, those
    in its samples, because there it must see them. ``packets_sampled`` counts the protected packets in
    that capture (one in ``sampling``), of which ``packets_expected`` had to be there.
    ``control_plane_frames`` counts IKE, ARP and the like in the captures, ``other_frames`` frames that
    are neither. ``unaccounted_frames`` (on a real interface, segments of the portal's connection) and
    ``unaccounted_bytes`` (there 0) are what an interface carried beyond all of that, at the end and in
    the direction with the most. ``rekeys`` is how often the security associations were replaced.
    ``tcp_retransmits`` counts retransmitted segments of both ends. With ``at_one_end`` all figures are
    the initiator's, because only the target's portal is known, or it has booted; the target's figures are 0.
    """

    link_bytes_initiator: Count
    link_bytes_target: Count
    protected_bytes: Count = 0
    protected_bytes_initiator: Count = 0
    protected_bytes_target: Count = 0
    packets_sampled: Count = 0
    packets_expected: Count = 0
    sampling: Count = 1
    cleartext_segments: Count = 0
    control_plane_frames: Count = 0
    other_frames: Count = 0
    unaccounted_frames: Count = 0
    unaccounted_bytes: Count = 0
    rekeys: Count = 0
    tcp_retransmits: Count | None = None
    air: AirProof | None = None
    at_one_end: bool = False

    @property
    def link_bytes(self) -> tuple[int, ...]:
        """What the interface of each end that was seen counted."""
        ends = (self.link_bytes_initiator, self.link_bytes_target)
        return ends[:1] if self.at_one_end else ends


class WifiState(msgspec.Struct, frozen=True, kw_only=True):
    """A station's association at one moment, as reported by iw(8); None where it reports nothing.

    Rates are the PHY's for the last frame each way; ``unix_s`` is the time of the report.
    """

    unix_s: Amount
    bssid: Detail | None = None
    ssid: Detail | None = None
    frequency_mhz: Amount | None = None
    channel: Count | None = None
    width_mhz: Count | None = None
    signal_dbm: Figure | None = None
    tx_bit_s: Amount | None = None
    tx_mode: Detail | None = None
    rx_bit_s: Amount | None = None
    rx_mode: Detail | None = None


class ClientPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one initiator contributed to a cell that several measured at once.

    ``started_unix_s`` is when its fio began to do I/O.
    """

    initiator: HostName
    status: Status
    reason: Prose | None = None
    read: Io | None = None
    write: Io | None = None
    started_unix_s: Amount | None = None
    proof: Proof | None = None
    wifi: tuple[WifiState, ...] = ()


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One cell and repeat: ``results/<run id>/cells/<key>.json``.

    In virtual time all times are virtual, and the date is in 2023. ``reason`` says why ``status`` is not
    ``ok``, and ``warnings`` are caveats about a figure that counts. ``repeat`` counts from 1. ``order`` is
    the cell's place in the random sequence of its run, from 0. ``sync_latency`` is that of fsync and similar
    calls. ``started_unix_s`` is when fio was started, or when the cell began if it never was. ``fio_ns`` is
    the run time that fio reports, ``wall_ns`` the time of the whole cell, with setup and proof. ``emulated``:
    the link is emulated; ``link_title`` is its name for people. ``link_rate_bit_s`` is the speed of a real
    link's slower NIC, None if neither reports it.

    ``agreed`` is what the ends negotiated for each protection, ``session`` what they negotiated for the
    transport. ``encrypts`` says whether the protection encrypts; None without any, and in records of older
    versions. ``proof`` is None without a network. ``raw`` are the outputs of tools, as files in the run's
    folder. With several initiators, ``clients`` has each one's part; ``read`` and ``write`` are their totals,
    with percentiles from the merged histograms. ``wifi`` is the association before, during and after.
    ``stall`` is what a fault did to its requests, if there was one.
    ``telemetry`` is what was measured during the cell, or just before it; None if nothing was. ``reread``
    says whether reads of a black-box target come from its disk; None where that is known. ``overrides`` are
    copied from its plan.
    """

    run_id: RunId
    setting: Setting
    column: Column
    workload: Workload
    repeat: Count
    order: Count
    status: Status
    reason: Prose | None = None
    warnings: tuple[Prose, ...] = ()
    read: Io | None = None
    write: Io | None = None
    sync_latency: Latency | None = None
    started_unix_s: Amount = 0.0
    wall_ns: Count = 0
    fio_ns: Count = 0
    emulated: bool = False
    link_title: Title = ""
    link_rate_bit_s: Size | None = None
    encrypts: bool | None = None
    proof: Proof | None = None
    session: dict[Prose, Prose] = {}
    agreed: dict[Name, dict[Prose, Prose]] = {}
    raw: tuple[RunFile, ...] = ()
    clients: tuple[ClientPart, ...] = ()
    wifi: tuple[WifiState, ...] = ()
    stall: Stall | None = None
    telemetry: Telemetry | None = None
    reread: Reread | None = None
    overrides: tuple[Prose, ...] = ()
    schema: int = SCHEMA_VERSION

    @property
    def background_load(self) -> tuple[BackgroundLoad, ...]:
        """What other programs took during the cell; empty if that is unknown."""
        return self.telemetry.background_load if self.telemetry is not None else ()
