"""How full each resource of a figure is that somebody else measured, as an interval, and which of its figures
contradict each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from harness.analysis import bounds, theory
from harness.analysis.interval import Interval, exact
from harness.analysis.limit import Limit
from harness.explain import described
from harness.explain.described import BUSY, COSTS, NEARLY, Described
from harness.explain.verdict import NEAR
from harness.model.units import format_duration, format_rate, format_size

PING = 2.0
"""How many times the round trip of I/Os in a row a ping takes at most: it wakes idle processors up."""

MORE, MANY = 1.1, 1.5
"""Several at once that reach at most so many times what one does share what is full; from the second on they
do not. More than ``MORE`` times a disk's or TCP's own figure is not its."""

SEEKS, CACHED_SEEKS = Interval(75, 150, 250), 1000
"""Random I/Os per second of a disk that turns; no queue orders them so well that there are more than the
second."""

CLOCK = 1.0002
"""How much faster than its rate a link may be: both clocks are right to 100 ppm (IEEE 802.3)."""


def rate_text(bytes_s: float) -> str:
    """In bits per second."""
    return format_rate(8 * bytes_s)


def bytes_text(bytes_s: float) -> str:
    """In both units."""
    return f"{bytes_s / 1e6:.4g} MB/s ({rate_text(bytes_s)})"


def contradictions(f: Described) -> Iterator[str]:
    """What cannot be, and by how much."""
    claim, rate = f.claim, f.rate
    framed = f" in {f.protection}" if f.is_protected else ""
    for name, said, within in (
        ("", f.figure, framed),
        ("the clear figure, ", claim.unprotected, ""),
        ("TCP by itself, ", claim.network, ""),
        ("several at once, ", claim.in_parallel, framed),
    ):
        figure = f.bytes_s(said)
        is_tcp = said is claim.network
        of = msgspec.structs.replace(claim, workload=f"tcp {claim.workload}") if is_tcp else claim
        most = described.carries(of, protected=bool(within), mtu_bytes=f.mtu or described.JUMBO)
        if most and figure and figure.low > most.high * CLOCK:
            frames = (
                f" in frames of {f.mtu} bytes" if f.mtu else f", even in frames of {described.JUMBO} bytes"
            )
            of_what = f"{'TCP' if described.is_tcp(of) else 'data'} that {f.link} carries{within}{frames}"
            cache = "a cache on this side answered, or " if f.is_storage else ""
            more = f"{figure.mid / most.high - 1:.1%} more than the {bytes_text(most.high)}"
            is_more = f"{name}{rate_text(figure.mid)} is {more}"
            yield f"{is_more} of {of_what}; {cache}the link or the unit is wrong"
    network = None if f.is_protected else f.bytes_s(claim.network)
    if rate and network and rate.low > MORE * network.high:
        times = f"{rate.mid / network.mid:.1f} times TCP's ({rate_text(network.mid)})"
        yield f"{rate_text(rate.mid)} is {times}: that is of something else, or a cache on this side answered"
    disk = f.times(claim.local)
    if disk and disk.low > MORE and f.is_uncached:
        yield f"{disk.mid:.2f} times what the disk gives by itself, and a cache was ruled out"
    if claim.iops and claim.throughput and rate and f.block and claim.throughput.unit == "":
        by_ios = claim.iops.value.times(f.block)
        if not 0.9 < by_ios.mid / rate.mid < 1.1:
            said_ios = f"{claim.iops.value.mid:g} I/Os of {format_size(f.block)} per second"
            yield f"{said_ios} are {rate_text(by_ios.mid)}, not {rate_text(rate.mid)}"
    if rate and f.block and f.in_flight and (each := f.each_s):
        held = f"{f.in_flight} at a time, each I/O takes {format_duration(each.mid)} at this rate"
        if claim.latency and claim.latency.low > 1.5 * each.high:
            yield f"{held} (Little's law), and at least {format_duration(claim.latency.low)} were reported"
        if claim.round_trip and claim.round_trip.low > PING * each.high:
            trip = format_duration(claim.round_trip.mid)
            yield f"{held}, and a round trip {trip}: a cache answered, or more at a time"
    if f.turns and f.is_random and (ios := f.ios) and ios.low > CACHED_SEEKS * f.disks:
        yield f"{ios.mid:.0f} random I/Os a second; a disk that turns has {SEEKS.high:g}: a cache answered"
    for busiest, whole in (
        (claim.busiest_core, claim.processor),
        (claim.target_busiest_core, claim.target_processor),
    ):
        if busiest and whole and whole.low > 1.05 * busiest.high:
            yield f"all cores are {whole.mid:.0%} busy on average, and the busiest only {busiest.mid:.0%}"
        for load, cores in ((busiest, claim.cores or math.inf), (whole, claim.cores or 1)):
            if load and load.low > 1.05 * cores:
                yield f"a load of {load.mid:.0%} is more than {claim.cores or 'all'} cores have"


class Share(NamedTuple):
    """How full a resource is, and that in words."""

    share: Interval
    words: str
    limit: Limit | None = None


def _link(f: Described) -> Share | None:
    if f.rate is None or f.carried is None or f.claim.link is None:
        return None
    of = "of the radio" if f.claim.link.is_radio else f"is {rate_text(f.carried.mid)} of data"
    of += " in both directions together" if f.claim.link.is_half else ""
    of += f"; a connection has one link of {f.claim.link.members}" if f.claim.link.members > 1 else ""
    return Share(f.rate.over(f.carried), f"the link's rate ({rate_text(f.rate.mid)}; {f.link} {of})")


def _core(f: Described) -> Share | None:
    """A full core, and what it works at, as far as the figures separate that."""
    if f.load is None:
        return None
    claim, share = f.claim, cipher_share(f)
    busiest = claim.target_busiest_core if f.is_target else claim.busiest_core
    whole = (claim.target_processor if f.is_target else claim.processor) or exact(0.0)
    busy = f"busiest core {f.load.mid:.0%} busy" if busiest else f"all cores {whole.mid:.0%} busy"
    busy += "" if busiest or whole.mid >= NEARLY else ", as one full core would make them"
    is_cipher = share is not None and share.mid >= 0.5
    if not f.is_protected or f.is_offloaded:
        what = f"packets{'' if f.is_protected else ' and requests'} ({busy})"
    elif share is not None:
        what = f"{'the cipher' if is_cipher else 'packets'} ({busy}, the cipher {min(1.0, share.mid):.0%})"
    else:
        least = f", at least {1 - f.ratio:.0%} with that" if f.ratio and f.ratio < 1 else ""
        what = f"packets and cipher of {f.protection} ({busy}{least})"
    whose = "the target's " if f.is_target else ""
    return Share(f.load, f"{whose}processor: {what}", Limit.CRYPTO if is_cipher else None)


def cipher_share(f: Described) -> Interval | None:
    """Which part of one core's time the cipher takes, by what it does by itself."""
    cipher = f.bytes_s(f.claim.cipher)
    is_work = f.is_protected and not f.is_offloaded
    return f.rate.over(cipher) if f.rate and cipher and is_work else None


def _window(f: Described) -> Share | None:
    claim = f.claim
    if f.rate is None or claim.round_trip is None or claim.window is None:
        return None
    share = f.rate.by(claim.round_trip).over(claim.window.times(claim.streams or 1))
    trip = format_duration(claim.round_trip.mid)
    return Share(share, f"the window ({format_size(claim.window.mid)} in {trip} a stream)")


def _round_trip(f: Described) -> Share | None:
    if f.claim.round_trip is None or f.each_s is None or f.in_flight is None:
        return None
    part = f"{format_duration(f.claim.round_trip.mid)} of the {format_duration(f.each_s.mid)} of each I/O"
    return Share(f.claim.round_trip.over(f.each_s), f"the round trip ({part}, {f.in_flight} at a time)")


def _loss(f: Described) -> Share | None:
    """Mathis et al., 1997: what Reno reaches; CUBIC is near it where round trips are short."""
    loss, trip = f.claim.loss, f.claim.round_trip
    if f.rate is None or f.is_storage or trip is None or loss is None or not loss.low:
        return None
    segment = 1.22 * (f.claim.streams or 1) * max(1, (f.mtu or 1500) - 20 - theory.TCP_HEADER_BYTES)
    root = loss.rising(math.sqrt)
    most = exact(segment).over(trip.by(root))
    words = f"packet loss (at {loss.mid:.2%} TCP reaches {rate_text(most.mid)} there)"
    return Share(f.rate.over(most), words)


def _disk(f: Described) -> Share | None:
    if share := f.times(f.claim.local):
        return Share(share, f"the disk ({share.mid:.2f} of its stand-alone rate)")
    if not (f.turns and f.is_random and f.ios and math.isfinite(f.disks)):
        return None
    share = f.ios.over(SEEKS.times(f.disks))
    words = f"the disk's seeks ({SEEKS.low:g} to {SEEKS.high:g} I/Os a second)"
    return Share(Interval(share.low, min(1.0, share.mid), share.high), words)


def _tcp(f: Described) -> Share | None:
    network = f.bytes_s(f.claim.network)
    if f.rate is None or network is None or f.is_protected:
        return None
    return Share(f.rate.over(network), f"TCP's rate without storage ({rate_text(network.mid)})")


class Candidate(NamedTuple):
    """It is full from ``full`` on, and may be from ``nearly``; above ``most`` it is not what is waited for.
    That it limits is sure only if the shares of ``others`` are known."""

    name: str
    limit: Limit
    used: Callable[[Described], Share | None]
    full: float
    nearly: float
    most: float = math.inf
    others: tuple[str, ...] = ("link", "core")


RESOURCES = (
    Candidate("link", Limit.LINK, _link, bounds.FULL, NEARLY, others=()),
    Candidate("core", Limit.CPU, _core, BUSY, NEARLY, others=("link",)),
    Candidate("window", Limit.WINDOW, _window, COSTS, COSTS),
    Candidate("round trip", Limit.ROUND_TRIP, _round_trip, COSTS, NEAR),
    Candidate("loss", Limit.LOST_PACKETS, _loss, math.inf, NEAR, PING),
    Candidate("disk", Limit.DEVICE, _disk, NEARLY, NEARLY, MORE),
    Candidate("TCP by itself", Limit.LINK, _tcp, math.inf, NEARLY),
)
"""By what a figure may be limited, if it was reported."""


class Shares(NamedTuple):
    """The resources by name; those that are full, those that are nearly, and those that may be, as far as
    was reported."""

    used: dict[str, tuple[Candidate, Share]]
    full: list[str]
    nearly: list[str]
    open: list[str]

    @property
    def first(self) -> list[str]:
        """Those that may limit. Who waits is not busy all the time, so a full core makes the others nearly
        full; and a full link leaves them some of their time."""
        is_sure = any(name in ("core", "link") for name in self.full)
        return self.full if is_sure else self.full + self.nearly

    def limit(self, name: str) -> Limit:
        resource, use = self.used[name]
        return use.limit or resource.limit

    def share(self, name: str) -> Interval:
        """0 where nothing is known."""
        return self.used[name][1].share if name in self.used else exact(0.0)

    def is_below(self, name: str, part: float) -> bool:
        """Whether it is known to be."""
        return name in self.used and self.share(name).mid < part and name not in self.open


def look(f: Described) -> Shares:
    """How full each resource is that was reported."""
    found = Shares({}, [], [], [])
    for each in RESOURCES:
        if (use := each.used(f)) is not None:
            found.used[each.name] = each, use
            low, mid, high = use.share.low, use.share.mid, use.share.high
            if mid >= each.full and each.nearly <= low <= each.most:
                found.full.append(each.name)
            elif each.nearly <= mid <= each.most:
                found.nearly.append(each.name)
            elif mid < each.nearly and high >= min(each.full, 1.0):
                found.open.append(each.name)
    return found
