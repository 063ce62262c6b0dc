"""Records of probes: the types in ``results/<run id>/probes/<key>.json``.

Every kind of probe has a struct for its figures. What a tool did not report is None.
"""

from __future__ import annotations

import msgspec

from harness.analysis.histogram import Histogram
from harness.model import (
    SCHEMA_VERSION,
    Column,
    Setting,
    Status,
    is_unencrypted,
)
from harness.model.beside import InterfaceUse, Others, ProcessorUse, RoundTrips
from harness.model.probing import Probe
from harness.model.ranges import Amount, Count


class PingFigures(msgspec.Struct, frozen=True, kw_only=True, tag="ping"):
    """``load_bit_s`` is what TCP carried during the pings, if the probe loads the path."""

    round_trips: RoundTrips
    load_bit_s: Amount | None = None


class TcpFigures(msgspec.Struct, frozen=True, kw_only=True, tag="tcp"):
    """Both ends' reports. ``received_bit_s`` is the goodput; the rest is what the sender's kernel knew.

    Rates are those of the payload. ``rtt_*`` are the kernel's smoothed round trips under this very load
    (tcp_info).
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


class UdpFigures(msgspec.Struct, frozen=True, kw_only=True, tag="udp"):
    """What was sent, and what the receiver got of it."""

    sent_bit_s: Amount | None
    received_bit_s: Amount | None
    datagrams: Count | None
    lost: Count | None
    lost_percent: Amount | None
    jitter_ns: Amount | None
    out_of_order: Count | None = None


class FloodStep(msgspec.Struct, frozen=True, kw_only=True):
    """One number of processes at once: requests sent and answered, and the sum of their replies per second.

    ``counted_per_s`` are all packets that the target's interface received and sent, whoever sent them.
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
    ``is_saturated``: more processes at once brought no more.
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

    host: str
    interface: str
    packets_per_s: Amount


class ForwardingFigures(msgspec.Struct, frozen=True, kw_only=True, tag="forwarding"):
    """What the initiator sent, and what came out at the far end, by the interfaces' counters."""

    offered_per_s: Amount
    arrived_per_s: Amount
    lost_percent: Amount
    hops: tuple[HopRate, ...] = ()


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


class Operation(msgspec.Struct, frozen=True, kw_only=True):
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


class KernelCipher(msgspec.Struct, frozen=True, kw_only=True):
    """A cipher in the kernel of these ends of the path, with its driver there (/proc/crypto).

    ``encrypt`` and ``decrypt`` include the integrity check. The cost of system call and copies was measured
    beside them, in ``turns``, and is subtracted. Times are undisturbed; in all they took ``stretch`` times as
    long, because other programs used the machine.
    """

    ends: tuple[str, ...]
    processors: Count
    driver: str
    turns: Count
    stretch: Amount
    encrypt: Operation
    decrypt: Operation


class CipherFigures(msgspec.Struct, frozen=True, kw_only=True, tag="cipher"):
    """The stand-alone ciphers of a proposal, in each kernel of the path."""

    kernels: tuple[KernelCipher, ...]


Figures = (
    PingFigures
    | TcpFigures
    | UdpFigures
    | PacketRateFigures
    | ForwardingFigures
    | UdpLatencyFigures
    | CipherFigures
)


class ProbeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One probe of one path, once: ``results/<run id>/probes/<key>.json``.

    Only a record with status ok has figures that may be used. ``raw`` are the tools' outputs in the run's
    folder, unmodified. ``processors``, ``interfaces`` and ``others`` cover the time in which the tools ran.
    ``unseen`` are the hops for which they are unknown, each with the reason. ``protected_bytes`` is what the
    protection carried, by the counters of the end that counted less; None without any. ``is_beside`` marks a
    probe that ``harness run`` made beside its cells, for a shorter time than ``harness probe`` would.
    """

    run_id: str
    setting: Setting
    column: Column
    probe: Probe
    repeat: Count
    order: Count
    status: Status
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    figures: Figures | None = None
    processors: tuple[ProcessorUse, ...] = ()
    interfaces: tuple[InterfaceUse, ...] = ()
    others: tuple[Others, ...] = ()
    unseen: dict[str, str] = {}
    protected_bytes: Count | None = None
    started_unix_s: Amount = 0.0
    wall_ns: Count = 0
    emulated: bool = False
    link_title: str = ""
    encrypts: bool | None = None
    agreed: dict[str, dict[str, str]] = {}
    raw: tuple[str, ...] = ()
    is_beside: bool = False
    schema: int = SCHEMA_VERSION

    @property
    def is_protected(self) -> bool:
        return bool(self.column.protection)

    @property
    def shown(self) -> str:
        """The name of its column for people."""
        return self.column.shown(is_unencrypted=is_unencrypted(self.encrypts, self.agreed))

    @property
    def key(self) -> str:
        """File name stem, unique in its run."""
        return probe_key(self.column, self.probe, self.repeat)


def probe_key(column: Column, probe: Probe, repeat: int) -> str:
    """File name stem of a probe's record."""
    return f"{column.label}.{probe.name}.r{repeat}"
