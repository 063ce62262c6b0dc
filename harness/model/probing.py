"""Kinds of probe. Of each its parameters, its figures, and how tables show them; probes that have names.

To add a kind, declare it here and measure it in a module of ``harness.probes``: plans, estimates, tables,
JSON and the page follow from the declaration.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, get_args

import msgspec

from harness.model.choices import Choice
from harness.model.errors import UsageError
from harness.model.histogram import Histogram
from harness.model.ranges import Amount, Count
from harness.model.telemetry import RoundTrips
from harness.model.texts import Algorithm, Drivers, HostName, InterfaceLabel
from harness.model.units import shown

LONGEST_S = 3600
MOST_COUNT = 10_000_000
SMALLEST_DATAGRAM_BYTES, LARGEST_DATAGRAM_BYTES = 8, 65_507

SPARSE_S = 0.1
"""Pings at this interval or a longer one are those of people, at a shorter one those at the cadence of
I/O."""

LOAD_S = 2
"""How long the load of a loaded ping goes on after the pings."""

_UNITS = {"_mbit_s": 1e6, "_ms": 1e6, "_us": 1e3}
"""By how keys of tables end: how many of what is recorded they are."""


class SocketUse(enum.StrEnum):
    """Whether a client keeps one socket for all its round trips, or opens and closes one for each."""

    KEPT = "kept"
    REOPENED = "reopened"


class Flood(enum.StrEnum):
    """What sends echo requests faster than they are answered: ping -f, or hping3."""

    PING = "ping"
    HPING3 = "hping3"


class View(Choice):
    """view"""

    LINK = "link"
    PPPOE = "pppoe"
    OPENFLOW = "openflow"
    PPS = "pps"
    UDP_LATENCY = "udp-latency"
    SCALE = "scale"
    COUNTERS = "counters"


TITLES = {
    View.LINK: "Paths: round trips, TCP and UDP",
    View.PPPOE: "Round trips, TCP and UDP, as the PPPoE article has them",
    View.OPENFLOW: "Round trips, TCP and UDP, as the OpenFlow article has them",
    View.PPS: "Packets per second",
    View.UDP_LATENCY: "UDP round trips in microseconds",
    View.SCALE: "Initiators at once: what each further one costs",
    View.COUNTERS: "Measured during the cells",
}

PATHS = (View.LINK, View.PPPOE, View.OPENFLOW)
"""Views with one row for each path."""

DETAILED = (View.LINK, View.PPPOE)
PUBLISHED = (View.PPPOE, View.OPENFLOW)

ROWS = {View.PPS: "Method", View.UDP_LATENCY: "Bytes"}
"""Distinguishes the rows of one path (``ProbeKind.row``) in views that have several."""


class Shown(msgspec.Struct, frozen=True):
    """A figure in tables. Its ``key`` is for programs and reference data, and ends with the unit.

    ``figure`` names it among a probe's figures, which have bits per second and nanoseconds; None: how busy
    the processors were, in percent. ``of`` says which probes of the kind have it.
    """

    key: str
    heading: str
    figure: str | None
    decimals: int = 2
    views: tuple[View, ...] = (View.LINK,)
    of: Callable[[Any], bool] = lambda _probe: True

    def read(self, figures: object) -> float | None:
        """The figure in the unit of its key."""
        for name in (self.figure or "").split("."):
            figures = getattr(figures, name, None)
        divisor = next((unit for end, unit in _UNITS.items() if self.key.endswith(end)), 1.0)
        return figures / divisor if isinstance(figures, int | float) else None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How a probe fills a link; None: at its rate, with packets of its MTU."""

    seconds: float
    rate_bit_s: int | None = None
    packet_bytes: int | None = None


class ProbeKind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the kinds of probe have in common. Parameters, and products of them, must be within
    ``BOUNDS``.

    ``VIEW`` is the one that a run of probes is followed by, of those that show its figures.
    """

    BOUNDS: ClassVar[Mapping[str, tuple[float, float]]] = {}
    FIGURES: ClassVar[tuple[Shown, ...]] = ()
    VIEW: ClassVar[View] = View.LINK
    SENDS: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Unique among the probes of a run."""
        raise NotImplementedError

    def figures_of(self, view: View) -> list[Shown]:
        """Those that a view shows."""
        return [figure for figure in self.FIGURES if view in figure.views and figure.of(self)]

    @property
    def row(self) -> str:
        """Of its view, one of several that a path has."""
        return ""

    @property
    def rank(self) -> float:
        """A row has the figures of the highest alone."""
        return 0.0

    @property
    def estimate_s(self) -> float:
        """How long it takes, about."""
        raise NotImplementedError

    @property
    def load(self) -> Load | None:
        """None: it sends only little."""
        return None


def check(probe: ProbeKind) -> None:
    """UsageError for parameters that no tool could use."""
    if not probe.SENDS:
        raise UsageError(
            f"the {probe.name} probe sends no packets, so it cannot be part of a probe profile",
            hint="harness run measures ciphers together with its cells",
        )
    for what, (least, most) in probe.BOUNDS.items():
        values = [getattr(probe, name) for name in what.split(" x ")]
        # Written so that NaN, which TOML has, is also refused.
        if None not in values and not least <= math.prod(values) <= most:
            found = shown(str(math.prod(values)))
            raise UsageError(f"a probe's {what}: expected {least:g} to {most:g}, found {found}")


class PingFigures(msgspec.Struct, frozen=True, kw_only=True, tag="ping"):
    """``load_bit_s`` is TCP's rate during the pings, if the probe loads the path."""

    round_trips: RoundTrips
    load_bit_s: Amount | None = None


def _sparse(probe: Ping) -> bool:
    return not probe.loaded and probe.interval_s >= SPARSE_S


def _cadent(probe: Ping) -> bool:
    return not probe.loaded and probe.interval_s < SPARSE_S


class Ping(ProbeKind, frozen=True, kw_only=True, tag="ping"):
    """Echo requests, one every ``interval_s``, on the idle path or while TCP fills it (``loaded``)."""

    BOUNDS = {
        "count": (1, MOST_COUNT),
        "interval_s": (0.0001, LONGEST_S),
        "count x interval_s": (0, LONGEST_S),
        "payload_bytes": (16, LARGEST_DATAGRAM_BYTES),
    }
    FIGURES = (
        Shown("ping_min_ms", "ping|min|ms", "round_trips.min_ns", 3, (View.PPPOE,), _sparse),
        Shown("ping_mean_ms", "ping|mean|ms", "round_trips.mean_ns", 3, PATHS, _sparse),
        Shown("ping_max_ms", "ping|max|ms", "round_trips.max_ns", 3, (View.PPPOE,), _sparse),
        Shown("ping_mdev_ms", "ping|mdev|ms", "round_trips.stddev_ns", 3, (View.PPPOE,), _sparse),
        Shown("ping_io_p50_ms", "ping 2 ms|p50|ms", "round_trips.p50_ns", 3, (View.LINK,), _cadent),
        Shown("ping_loaded_mean_ms", "ping loaded|mean|ms", "round_trips.mean_ns", 3, of=lambda p: p.loaded),
        Shown("ping_lost_percent", "ping|lost|%", "round_trips.lost_percent", 1, DETAILED, _sparse),
    )

    count: int = 10
    interval_s: float = 1.0
    payload_bytes: int = 56
    loaded: bool = False

    @property
    def name(self) -> str:
        interval = f"{self.interval_s:g}s" if self.interval_s >= 1 else f"{self.interval_s * 1e3:g}ms"
        return f"ping-{interval}{'-loaded' if self.loaded else ''}"

    @property
    def estimate_s(self) -> float:
        return self.count * self.interval_s + (LOAD_S if self.loaded else 0) + 0.2

    @property
    def load(self) -> Load | None:
        return Load(seconds=self.count * self.interval_s + LOAD_S) if self.loaded else None


class TcpFigures(msgspec.Struct, frozen=True, kw_only=True, tag="tcp"):
    """Both ends' reports. ``received_bit_s`` is the goodput; the rest is what the sender's kernel knew.

    Rates count payload. ``rtt_*`` are the kernel's smoothed round trips under this very load (tcp_info).
    """

    sent_bytes: Count | None
    received_bytes: Count | None
    sent_bit_s: Amount | None
    received_bit_s: Amount | None
    retransmits: Count | None = None
    rtt_min_ns: Amount | None = None
    rtt_mean_ns: Amount | None = None
    rtt_max_ns: Amount | None = None
    cwnd_max_bytes: Count | None = None
    pmtu_bytes: Count | None = None


def _plain(probe: Tcp) -> bool:
    return probe.name == "tcp"


class Tcp(ProbeKind, frozen=True, kw_only=True, tag="tcp"):
    """iperf3 over TCP, from the initiator to the target or back (``reverse``)."""

    BOUNDS = {"duration_s": (1, LONGEST_S), "streams": (1, 128)}
    FIGURES = (
        Shown("tcp_sent_mbit_s", "TCP|sent|Mbit/s", "sent_bit_s", 1, (View.PPPOE,), _plain),
        Shown("tcp_received_mbit_s", "TCP|received|Mbit/s", "received_bit_s", 1, PATHS, _plain),
        Shown("tcp_retransmits", "TCP|retrans-|mits", "retransmits", 0, DETAILED, _plain),
        Shown("tcp_cpu_percent", "CPU|during|TCP %", None, 0, DETAILED, _plain),
    )

    duration_s: int = 10
    streams: int = 1
    reverse: bool = False

    @property
    def name(self) -> str:
        streams = f"-x{self.streams}" if self.streams > 1 else ""
        return f"tcp{streams}{'-reverse' if self.reverse else ''}"

    @property
    def estimate_s(self) -> float:
        return self.duration_s + 1.0

    @property
    def load(self) -> Load:
        return Load(seconds=self.duration_s)


class UdpFigures(msgspec.Struct, frozen=True, kw_only=True, tag="udp"):
    """What was sent, and what was received."""

    sent_bit_s: Amount | None
    received_bit_s: Amount | None
    datagrams: Count | None
    lost: Count | None
    lost_percent: Amount | None
    jitter_ns: Amount | None
    out_of_order: Count | None = None


class Udp(ProbeKind, frozen=True, kw_only=True, tag="udp"):
    """iperf3 over UDP, sending ``rate_bit_s``, in datagrams of ``payload_bytes`` (None: iperf3's choice)."""

    BOUNDS = {
        "duration_s": (1, LONGEST_S),
        "rate_bit_s": (1000, 10**12),
        "payload_bytes": (16, LARGEST_DATAGRAM_BYTES),
    }
    FIGURES = (
        Shown("udp_sent_mbit_s", "UDP|sent|Mbit/s", "sent_bit_s", 1, (View.PPPOE,)),
        Shown("udp_received_mbit_s", "UDP|received|Mbit/s", "received_bit_s", 1, (View.LINK, View.OPENFLOW)),
        Shown("udp_jitter_ms", "jitter|ms", "jitter_ns", 3, PATHS),
        Shown("udp_lost", "lost", "lost", 0, PUBLISHED),
        Shown("udp_datagrams", "of", "datagrams", 0, PUBLISHED),
        Shown("udp_lost_percent", "lost|%", "lost_percent", 2, PATHS),
        Shown("udp_out_of_order", "out of|order", "out_of_order", 0, (View.OPENFLOW,)),
    )

    duration_s: int = 10
    rate_bit_s: int = 10_000_000_000
    payload_bytes: int | None = None

    @property
    def name(self) -> str:
        return f"udp-{self.rate_bit_s / 1e6:g}m"

    @property
    def rank(self) -> float:
        return self.rate_bit_s

    @property
    def estimate_s(self) -> float:
        return self.duration_s + 1.0

    @property
    def load(self) -> Load:
        return Load(seconds=self.duration_s, rate_bit_s=self.rate_bit_s, packet_bytes=self.payload_bytes)


class FloodStep(msgspec.Struct, frozen=True, kw_only=True):
    """One number of parallel processes: requests sent and answered, and the sum of their replies per second.

    ``counted_per_s`` are all packets that the target's interface received and sent, from any sender.
    ``gap_us`` is the time between two requests of one process; None: as fast as they are answered (ping -f).
    """

    at_once: Count
    sent: Count
    received: Count
    replies_per_s: Amount
    lost_percent: Amount
    counted_per_s: Amount
    gap_us: Count | None = None


class PacketRateFigures(msgspec.Struct, frozen=True, kw_only=True, tag="packet-rate"):
    """The steps, and what follows from the best of them.

    ``packets_per_s`` counts each reply and the request that it proves to have arrived: twice the replies, if
    nothing was lost. With losses it is None, because requests may have arrived whose replies were lost.
    ``is_saturated``: more processes did not raise the rate.
    """

    steps: tuple[FloodStep, ...]
    at_once: Count
    replies_per_s: Amount
    packets_per_s: Amount | None
    counted_per_s: Amount
    lost_percent: Amount
    is_saturated: bool


class HopRate(msgspec.Struct, frozen=True, kw_only=True):
    """What left a hop by one interface, or reached the target by its own."""

    host: HostName
    interface: InterfaceLabel
    packets_per_s: Amount


class ForwardingFigures(msgspec.Struct, frozen=True, kw_only=True, tag="forwarding"):
    """What the initiator sent and what reached the far end, by the interfaces' counters."""

    offered_per_s: Amount
    arrived_per_s: Amount
    lost_percent: Amount
    hops: tuple[HopRate, ...] = ()

    @property
    def at_once(self) -> int:
        return 1

    @property
    def packets_per_s(self) -> float:
        return self.arrived_per_s

    @property
    def counted_per_s(self) -> float:
        return self.arrived_per_s


_FLOOD = (
    Shown("at_once", "at once", "at_once", 0, (View.PPS,)),
    Shown("lost_percent", "lost|%", "lost_percent", 1, (View.PPS,)),
    Shown("replies_per_s", "replies|per s", "replies_per_s", 0, (View.PPS,)),
    Shown("packets_per_s", "packets|per s", "packets_per_s", 0, (View.PPS,)),
    Shown("counted_per_s", "counted|per s", "counted_per_s", 0, (View.PPS,)),
)
"""For both kinds of floods; an unanswered one has no replies."""


class PacketRate(ProbeKind, frozen=True, kw_only=True, tag="packet-rate"):
    """Floods of echo requests from a growing number of processes, until their total stops growing."""

    BOUNDS = {"duration_s": (1, LONGEST_S), "most_at_once": (1, 64)}
    VIEW = View.PPS
    FIGURES = _FLOOD

    tool: Flood = Flood.PING
    duration_s: int = 3
    most_at_once: int = 8

    @property
    def name(self) -> str:
        return f"pps-{self.tool}"

    @property
    def row(self) -> str:
        return f"{self.tool}, echo"

    @property
    def estimate_s(self) -> float:
        return 3.0 * self.duration_s


class Forwarding(ProbeKind, frozen=True, kw_only=True, tag="forwarding"):
    """An unanswered flood, and how much of it each hop forwards."""

    BOUNDS = {"duration_s": (1, LONGEST_S)}
    VIEW = View.PPS
    FIGURES = _FLOOD

    duration_s: int = 3

    @property
    def name(self) -> str:
        return "pps-forwarding"

    @property
    def row(self) -> str:
        return "flood, one way"

    @property
    def estimate_s(self) -> float:
        return self.duration_s + 1.0


class UdpLatencyFigures(msgspec.Struct, frozen=True, kw_only=True, tag="udp-latency"):
    """Round trips that came back. ``mean_ns`` is the total time divided by their number."""

    round_trips: Count
    lost: Count
    mean_ns: Amount | None
    min_ns: Amount | None
    max_ns: Amount | None
    p50_ns: Amount | None
    p99_ns: Amount | None
    p99_9_ns: Amount | None
    histogram: Histogram = Histogram()


def _reopened(probe: UdpLatency) -> bool:
    return probe.socket is SocketUse.REOPENED


def _kept(probe: UdpLatency) -> bool:
    return probe.socket is SocketUse.KEPT


class UdpLatency(ProbeKind, frozen=True, kw_only=True, tag="udp-latency"):
    """``count`` round trips of a UDP datagram."""

    BOUNDS = {
        "count": (1, MOST_COUNT),
        "payload_bytes": (SMALLEST_DATAGRAM_BYTES, LARGEST_DATAGRAM_BYTES),
    }
    VIEW = View.UDP_LATENCY
    FIGURES = (
        Shown("reopened_mean_us", "reopened|mean", "mean_ns", 1, (View.UDP_LATENCY,), _reopened),
        Shown("kept_mean_us", "kept open|mean", "mean_ns", 1, (View.UDP_LATENCY,), _kept),
        Shown("reopened_p50_us", "reopened|p50", "p50_ns", 1, (View.UDP_LATENCY,), _reopened),
        Shown("kept_p50_us", "kept open|p50", "p50_ns", 1, (View.UDP_LATENCY,), _kept),
        Shown("kept_p99_us", "kept open|p99", "p99_ns", 1, (View.UDP_LATENCY,), _kept),
    )

    payload_bytes: int = 1024
    count: int = 100_000
    socket: SocketUse = SocketUse.KEPT

    @property
    def name(self) -> str:
        return f"udp-latency-{self.payload_bytes}-{self.socket}"

    @property
    def row(self) -> str:
        return str(self.payload_bytes)

    @property
    def estimate_s(self) -> float:
        return self.count * 300e-6


class CipherTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times to encrypt, or decrypt, ``short_bytes`` and ``long_bytes``: two points of a line."""

    short_bytes: Count
    short_ns: Amount
    long_bytes: Count
    long_ns: Amount

    def __post_init__(self) -> None:
        # msgspec names the file and the field.
        if self.short_bytes >= self.long_bytes:
            raise ValueError(f"expected short_bytes below {self.long_bytes}, found {self.short_bytes}")

    @property
    def each_byte_ns(self) -> float:
        return max(0.0, (self.long_ns - self.short_ns) / (self.long_bytes - self.short_bytes))

    @property
    def each_packet_ns(self) -> float:
        """The time of a packet besides that of its bytes."""
        return max(0.0, self.short_ns - self.short_bytes * self.each_byte_ns)

    @property
    def costs_ns(self) -> dict[str, float]:
        """Both, by what they are of."""
        return {"packet": self.each_packet_ns, "byte": self.each_byte_ns}


class KernelCipher(msgspec.Struct, frozen=True, kw_only=True):
    """A cipher in the kernel of these ends of the path, with its driver there (/proc/crypto).

    ``encrypt`` and ``decrypt`` include the integrity check. The cost of system call and copies was measured
    in the same ``turns``, and is subtracted. Times are corrected for other programs, which stretched them by
    the factor ``stretch``.
    """

    ends: tuple[HostName, ...]
    cores: Count
    driver: Drivers
    turns: Count
    stretch: Amount
    encrypt: CipherTimes
    decrypt: CipherTimes


class CipherFigures(msgspec.Struct, frozen=True, kw_only=True, tag="cipher"):
    """The stand-alone ciphers of a proposal, in each kernel of the path."""

    kernels: tuple[KernelCipher, ...]


class Cipher(ProbeKind, frozen=True, kw_only=True, tag="cipher"):
    """The cipher and integrity check of an ESP proposal, stand-alone, in each kernel of the path; nothing is
    sent.

    ``algorithms`` are the kernel's names. ``key_bits`` is the length of the cipher's key, None if its keys
    have one length.
    """

    SENDS = False

    algorithms: tuple[Algorithm, ...]
    key_bits: Count | None = None

    @property
    def name(self) -> str:
        return "cipher"

    @property
    def estimate_s(self) -> float:
        return 0.3


Probe = Ping | Tcp | Udp | PacketRate | Forwarding | UdpLatency | Cipher
KINDS: tuple[type[Probe], ...] = get_args(Probe)

Figures = (
    PingFigures
    | TcpFigures
    | UdpFigures
    | PacketRateFigures
    | ForwardingFigures
    | UdpLatencyFigures
    | CipherFigures
)

PAYLOADS_BYTES = (64, 1024, 4096, 32768)

NAMED: Mapping[str, tuple[Probe, ...]] = {
    "ping": (Ping(),),
    "ping-io": (Ping(count=500, interval_s=0.002),),
    "ping-loaded": (Ping(count=100, interval_s=0.05, loaded=True),),
    "tcp": (Tcp(),),
    "udp": (Udp(),),
    "pps": (PacketRate(tool=Flood.PING), PacketRate(tool=Flood.HPING3), Forwarding()),
    "udp-latency": tuple(
        UdpLatency(payload_bytes=size, socket=socket) for size in PAYLOADS_BYTES for socket in SocketUse
    ),
}
"""What ``--probe NAME`` stands for."""
