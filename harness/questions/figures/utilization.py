"""How full each resource may be of a figure that somebody else measured, as an interval: by what follows from
the figure's words (what its link carries in frames of its protocol and protection, how busy a core is, how
long each I/O takes); and what contradicts itself."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from harness.analysis import theory, wire
from harness.analysis.interval import Interval, exact
from harness.analysis.limit import Limit
from harness.analysis.wire import framing_of
from harness.explain.verdict import NEAR
from harness.model import TRANSPORTS, IpsecMode, LinkProfile
from harness.model.protections import PROTECTIONS, UDP_HEADER_BYTES
from harness.model.units import format_duration, format_rate, format_size
from harness.questions.figures.quantities import IOS, PACKETS
from harness.questions.figures.reported import Amount, Reported, has

SHARED = 0.5
"""The part of its rate that TCP gets at least of a medium that both directions share (802.11n to ax)."""

MTU, JUMBO, IPV6_MTU = 1500, 9000, 1280
"""Bytes; the last is the least that a tunnel of IPv6 has (RFC 8200, section 5)."""

NEARLY, BUSY = 0.85, 0.95
"""From which part on a resource may be full, and from which a core is; a link is from ``theory.FULL`` on."""

COSTS = 0.8
"""A protection that takes more than framing and scatter leaves less of the clear figure. From this part on
a window or round trips are what is waited for."""

NEAR_BY_S = 1e-3
"""The longest round trip of a path near by."""

MORE = 1.1
"""Several at once that reach at most so many times what one does share what is full. More than so many times
a disk's or TCP's own figure is not its."""

CLOCK = 1.0002
"""How much faster than its rate a link may be: both clocks are right to 100 ppm (IEEE 802.3)."""

_CLEAR = {"", "off", "none", "no", "clear", "plain", "plaintext", "false", "unencrypted"}

_CIPHERS = {
    "gcm": ("rfc4106(gcm(aes))",),
    "chacha": ("rfc7539esp(chacha20,poly1305)",),
    "null": ("ecb(cipher_null)", "hmac(sha1)"),
    "3des": ("cbc(des3_ede)", "hmac(sha1)"),
    "sha2|sha-?256|sha-?512": ("cbc(aes)", "hmac(sha256)"),
    "sha|cbc|aes": ("cbc(aes)", "hmac(sha1)"),
    "": ("rfc4106(gcm(aes))",),
}
"""By what a protection's words have, the first that fits: the kernel's algorithms of ESP. Where none is named
it is one with few bytes, and transport mode, so that nothing is called impossible by mistake."""


def is_protected(claim: Reported) -> bool:
    """Whether a protection was reported that is not "off" in some words."""
    return claim.protection.strip().lower() not in _CLEAR


def words_of(claim: Reported) -> str:
    """What was done, and over which protocol."""
    return f"{claim.workload} {claim.transport}".lower()


def with_words(claim: Reported) -> Reported:
    """With what its words say: the bytes of an I/O (``rand-read-4k``), how many streams (``-P 8``), and the
    link's MTU, which that of a tunnel is below."""
    words = words_of(claim)
    block = re.search(r"(?<![0-9.])([0-9]+) ?([km])i?b?(?![a-z])", words)
    streams = re.search(r"-p ?([0-9]{1,4})\b", words) or re.search(
        r"\b([0-9]{1,4}) (?:parallel )?(?:streams|connections|flows)", words
    )
    about = f"{words} {claim.link.words if claim.link else ''}".lower()
    named = re.search(r"mtu\D{0,3}([0-9]{3,5})", about)
    mtu = claim.mtu or (int(named[1]) if named else 9000 if "jumbo" in about else None)
    return msgspec.structs.replace(
        claim,
        block=claim.block or (int(block[1]) * 1024 ** " km".index(block[2]) if block else None),
        streams=claim.streams or (int(streams[1]) or None if streams else None),
        mtu=MTU if mtu and is_protected(claim) and IPV6_MTU <= mtu < MTU else mtu,
    )


def _framing(claim: Reported, mtu_bytes: int) -> theory.Framing | None:
    words = f"{claim.protection} {claim.algorithm}".lower()
    mode = IpsecMode.TUNNEL if "tunnel" in words else IpsecMode.TRANSPORT
    for name, each in PROTECTIONS.items():
        if name in words and not each.pre_existing:
            return framing_of((name,), {}, mode, mtu_bytes)
    if not has("ipsec|esp|swan|ike", words):
        return None
    return next(theory.esp(each, mode) for pattern, each in _CIPHERS.items() if has(pattern, words))


def rate_text(bytes_s: float) -> str:
    """In bits per second."""
    return format_rate(8 * bytes_s)


class State(enum.Enum):
    """``OPEN``: by what was reported it may be full or not."""

    FULL, NEARLY, OPEN, FREE = range(4)


class Share(NamedTuple):
    """How full a resource may be, in words what limits if it is, and what is wrong ``beyond`` what is
    ``possible``.

    It is full from ``full`` on, and may be from ``nearly`` on; above ``most`` it is not what is waited for.
    That it limits is sure only if the shares of ``others`` are known.
    """

    limit: Limit
    share: Interval
    words: str
    full: float
    nearly: float
    most: float = math.inf
    others: tuple[str, ...] = ("link", "core")
    possible: float = math.inf
    beyond: str = ""

    @property
    def state(self) -> State:
        if self.share.mid >= self.full and self.nearly <= self.share.low <= self.most:
            return State.FULL
        if self.nearly <= self.share.mid <= self.most:
            return State.NEARLY
        may_be = self.share.mid < self.nearly and self.share.high >= min(self.full, 1.0)
        return State.OPEN if may_be else State.FREE


class Described:
    """One figure with what follows from its words; rates are in bytes of data per second.

    ``each_s`` is the time of an I/O, by Little's law or as reported; ``cipher`` the part of a core's time
    that the cipher takes, by what it does by itself. ``ends`` are the loads of either end's busiest core, and
    of all.
    """

    def __init__(self, claim: Reported) -> None:
        self.claim, self.words = claim, words_of(claim)
        self.about = f"{self.words} {claim.machine} {claim.note} {claim.disk}".lower()
        # What was done.
        name = next((name for name in TRANSPORTS if name.split("-")[0] in self.words), None)
        self.transport = wire.transport(name) if name else None
        over = r"\btcp|iperf|\bnfs|\bsmb|cifs|\bssh|sftp|\bscp|rsync|http|\bftp"
        self.is_tcp = name is not None or has(over, f"{self.words} {claim.protection}")
        self.is_tcp = self.is_tcp and not has("udp|rdma|roce|infiniband", f"{self.words} {claim.protection}")
        named = r"fio|read|write|disk|volume|\bdd\b|copy|nfs|smb|ceph"
        self.is_storage = bool(name or claim.block or has(named, self.words))
        self.is_polling = has("spdk|dpdk|vpp|mayastor|poll", self.about)
        self.is_protected = is_protected(claim)
        self.protection = claim.protection.strip() or "the protection"
        self.is_offloaded = bool(claim.offload) or has("null", f"{claim.protection} {claim.algorithm}")
        # How fast.
        self.figure = claim.throughput or claim.iops
        self.rate = self.bytes_s(self.figure)
        self.link = format_rate(claim.link.rate_bit_s) if claim.link and claim.link.rate_bit_s else "the link"
        self.carried = self.carries()
        ratio = self.times(claim.unprotected) if self.is_protected else None
        self.ratio = ratio.mid if ratio else None
        # dd has one request in flight, and so has each job of fio's engines that wait.
        depth = claim.depth or (1 if has(r"\bdd\b.*(sync|direct)|psync", self.words) else None)
        self.in_flight = depth and depth * (claim.jobs or 1)
        held = exact(claim.block * self.in_flight) if claim.block and self.in_flight else None
        self.each_s = _over(held, self.rate) or claim.latency
        self.is_far = claim.round_trip is not None and claim.round_trip.mid > NEAR_BY_S
        # One at a time, what a protection adds is in the time of each.
        self.is_in_turn = self.in_flight == 1 and self.ratio is not None and self.ratio < COSTS
        # How busy.
        self.ends = (
            (claim.busiest_core, claim.processor),
            (claim.target_busiest_core, claim.target_processor),
        )
        own, target = (self._core(*end) for end in self.ends)
        self.load = own.most(target) if own and target else own or target
        self.is_target = target is not None and (own is None or target.mid > own.mid)
        self.is_idle = self.load is not None and self.load.high < BUSY
        is_work = self.is_protected and not self.is_offloaded
        self.cipher = _over(self.rate, self.bytes_s(claim.cipher)) if is_work else None
        self.used = dict(_uses(self))

    def carries(
        self, *, is_clear: bool = False, is_tcp: bool = False, mtu_bytes: int | None = None
    ) -> Interval | None:
        """Bytes of data per second that the link carries in full frames: TCP's with timestamps (RFC 7323),
        and at most without, or UDP's unless TCP was reported. One connection has one link of a bond."""
        claim, link = self.claim, self.claim.link
        if link is None or link.rate_bit_s is None:
            return None
        if claim.packet:
            # The size of the frame, as in RFC 2544, or of UDP's data.
            most = claim.packet / (claim.packet + 20)
            part = Interval(claim.packet / (claim.packet + 66), most, most)
        elif link.is_radio:
            part = exact(1.0)
        else:
            mtu_bytes, rate_bit_s = mtu_bytes or claim.mtu or MTU, round(link.rate_bit_s)
            framing = None if is_clear or not self.is_protected else _framing(claim, mtu_bytes)
            profile = LinkProfile(
                name="reported", title="", emulated=False, rate_bit_s=rate_bit_s, mtu_bytes=mtu_bytes
            )
            frames = theory.Wire(link=profile, framing=framing)
            if not (goodput := frames.goodput_bytes_s):
                return None
            spare = theory.TCP_HEADER_BYTES - (20 if self.is_tcp or is_tcp else UDP_HEADER_BYTES)
            most = 1 + spare / frames.mss_bytes
            least = most if "udp" in self.words else 1.0
            if self.transport and claim.block and least == 1:
                least = claim.block / (claim.block + self.transport.header_bytes({}, claim.block))
            part = Interval(least, least, most).times(8 * goodput / link.rate_bit_s)
        if link.is_radio or link.is_half:
            part = Interval(part.low * SHARED, part.mid * (1 + SHARED) / 2, part.high)
        elif has(r"\brw\b|mix|bidir|duplex|both|read.*write|write.*read", self.words):
            part = part.times(2)
        one = 1 / link.members
        one_to_all = Interval(one, min(1.0, (claim.streams or 1) * one), 1.0)
        return part.by(one_to_all).times(link.rate_bit_s / 8)

    def bytes_s(self, other: Amount | None) -> Interval | None:
        """Bytes of data per second; None where the size of an I/O or packet is not known."""
        each = {IOS: self.claim.block, PACKETS: self.claim.packet}.get(other.unit, 1) if other else None
        return other.value.times(each) if other and each else None

    def times(self, other: Amount | None) -> Interval | None:
        """How many times ``other`` the figure is; of two in I/Os whatever their size."""
        if self.figure and other and self.figure.unit == other.unit:
            return self.figure.value.over(other.value)
        return _over(self.rate, self.bytes_s(other))

    def _core(self, busiest: Interval | None, whole: Interval | None) -> Interval | None:
        """How full an end's busiest core is: at least as full as all are on average, at most as full as the
        load of all in one."""
        if self.is_polling:
            return None
        if busiest is not None or whole is None:
            return busiest and busiest.rising(lambda load: min(1.0, load))
        together = whole.times(self.claim.cores) if self.claim.cores else exact(math.inf)
        most = min(1.0, together.high)
        # The load of one full core is probably that.
        is_one = NEARLY <= together.mid < 1.3
        return Interval(min(1.0, whole.low), most if is_one else min(1.0, whole.mid), most)

    def share(self, name: str) -> Interval:
        """0 where nothing is known."""
        return self.used[name].share if name in self.used else exact(0.0)

    def among(self, state: State) -> list[str]:
        """The resources in a state."""
        return [name for name, use in self.used.items() if use.state is state]

    @property
    def limiting(self) -> list[Share]:
        """Those that may limit. Who waits is not busy all the time, so a full core makes the others nearly
        full; and a full link leaves them some of their time."""
        full = self.among(State.FULL)
        names = full if {"core", "link"} & {*full} else full + self.among(State.NEARLY)
        return [self.used[name] for name in names]


def _over(one: Interval | None, other: Interval | None) -> Interval | None:
    return one.over(other) if one and other else None


def contradictions(f: Described) -> Iterator[str]:
    """What cannot be, and by how much."""
    claim, rate = f.claim, f.rate
    for name, said, is_framed in (
        ("", f.figure, f.is_protected),
        ("the clear figure, ", claim.unprotected, False),
        ("TCP by itself, ", claim.network, False),
        ("several at once, ", claim.in_parallel, f.is_protected),
    ):
        figure = f.bytes_s(said)
        is_tcp = f.is_tcp or said is claim.network
        most = f.carries(is_clear=not is_framed, is_tcp=is_tcp, mtu_bytes=claim.mtu or JUMBO)
        if most and figure and figure.low > most.high * CLOCK:
            limit = f"the {most.high / 1e6:.4g} MB/s ({rate_text(most.high)})"
            limit += f" of {'TCP' if is_tcp else 'data'} that {f.link} carries"
            limit += f" in {f.protection}" if is_framed else ""
            limit += f" in frames of {claim.mtu} bytes" if claim.mtu else f", even in frames of {JUMBO} bytes"
            more = f"{figure.mid / most.high - 1:.1%} more than {limit}"
            cache = "a cache on this side answered, or " if f.is_storage else ""
            yield f"{name}{rate_text(figure.mid)} is {more}; {cache}the link or the unit is wrong"
    yield from (use.beyond for use in f.used.values() if use.share.low > use.possible)
    if claim.iops and claim.throughput and rate and claim.block and not claim.throughput.unit:
        by_ios = claim.iops.value.mid * claim.block
        if not 0.9 < by_ios / rate.mid < 1.1:
            said_ios = f"{claim.iops.value.mid:g} I/Os of {format_size(claim.block)} per second"
            yield f"{said_ios} are {rate_text(by_ios)}, not {rate_text(rate.mid)}"
    if claim.latency and (each := f.each_s) and claim.latency.low > 1.5 * each.high:
        took = f"{f.in_flight} at a time, each I/O takes {format_duration(each.mid)} at this rate"
        yield f"{took} (Little's law), and at least {format_duration(claim.latency.low)} were reported"
    for busiest, whole in f.ends:
        if busiest and whole and whole.low > 1.05 * busiest.high:
            yield f"all cores are {whole.mid:.0%} busy on average, and the busiest only {busiest.mid:.0%}"
        for load, cores in ((busiest, claim.cores or math.inf), (whole, claim.cores or 1)):
            if load and load.low > 1.05 * cores:
                yield f"a load of {load.mid:.0%} is more than {claim.cores or 'all'} cores have"


def _uses(f: Described) -> Iterator[tuple[str, Share]]:
    """By what a figure may be limited, if it was reported."""
    claim, rate, trip, each = f.claim, f.rate, f.claim.round_trip, f.each_s
    said, streams = rate_text(rate.mid) if rate else "", claim.streams or 1
    took, waited = (format_duration(time.mid) if time else "" for time in (each, trip))
    network = None if f.is_protected else f.bytes_s(claim.network)
    if (share := _over(rate, f.carried)) and f.carried and claim.link:
        of = "of the radio" if claim.link.is_radio else f"is {rate_text(f.carried.mid)} of data"
        of += " in both directions together" if claim.link.is_half else ""
        of += f"; a connection has one link of {claim.link.members}" if claim.link.members > 1 else ""
        words = f"the link's rate ({said}; {f.link} {of})"
        yield "link", Share(Limit.LINK, share, words, theory.FULL, NEARLY, others=())
    if f.load:
        yield "core", _core(f, f.load)
    if trip and claim.window and (share := _over(rate, claim.window.times(streams))):
        words = f"the window ({format_size(claim.window.mid)} in {waited} a stream)"
        yield "window", Share(Limit.WINDOW, share.by(trip), words, COSTS, COSTS)
    if trip and each and f.in_flight:
        words = f"the round trip ({waited} of the {took} of each I/O, {f.in_flight} at a time)"
        beyond = f"{words} is longer than the I/O: a cache answered, or more at a time"
        share = trip.over(each)
        # A ping wakes idle processors up: it takes up to twice the round trip of I/Os in a row.
        yield ("round trip", Share(Limit.ROUND_TRIP, share, words, COSTS, NEAR, possible=2.0, beyond=beyond))
    if rate and trip and claim.loss and claim.loss.low and not f.is_storage:
        # Mathis et al., 1997: what Reno reaches; CUBIC is near it where round trips are short.
        segment = 1.22 * streams * max(1, (claim.mtu or MTU) - 20 - theory.TCP_HEADER_BYTES)
        reached = exact(segment).over(trip.by(claim.loss.rising(math.sqrt)))
        words = f"packet loss (at {claim.loss.mid:.2%} TCP reaches {rate_text(reached.mid)} there)"
        yield "loss", Share(Limit.LOST_PACKETS, rate.over(reached), words, math.inf, NEAR, 2.0)
    several = re.search(r"\b([0-9]{1,3}) ?[x*]", claim.disk.lower())
    is_counted = several or not has("raid|array|pool|disks|drives", claim.disk)
    turns = has(r"hdd|spinning|hard disk|rotat|[57][.,]?[24]00|1[05]k", claim.disk)
    if share := f.times(claim.local):
        off = r"(no|without|un)[ -]?cach|cache[ds]? ?(is |are |=)?(off|none)|(larger|more) than (memory|ram)"
        possible = MORE if has(off, f.about.replace(" the ", " ")) else math.inf
        words = f"the disk ({share.mid:.2f} of its stand-alone rate)"
        beyond = f"{share.mid:.2f} times what the disk gives by itself, and a cache was ruled out"
    elif f.figure and turns and is_counted and has("rand", f.words):
        # No queue orders seeks so well that there are four times the most.
        seeks, possible = Interval(75, 150, 250).times(float(several[1]) if several else 1.0), 4.0
        ios = f.figure.value if f.figure.unit == IOS else f.figure.value.times(1 / (claim.block or math.inf))
        share = ios.over(seeks)
        share = Interval(share.low, min(1.0, share.mid), share.high)
        words = f"the disk's seeks ({seeks.low:g} to {seeks.high:g} I/Os a second)"
        beyond = f"{ios.mid:.0f} random I/Os a second; a disk that turns has {seeks.high:g}: a cache answered"
    if share:
        yield (
            "disk",
            Share(Limit.DEVICE, share, words, NEARLY, NEARLY, MORE, possible=possible, beyond=beyond),
        )
    if network and (share := _over(rate, network)):
        words = f"TCP's rate without storage ({rate_text(network.mid)})"
        beyond = f"{said} is {share.mid:.1f} times TCP's ({rate_text(network.mid)})"
        beyond += ": that is of something else, or a cache on this side answered"
        yield (
            "TCP by itself",
            Share(Limit.LINK, share, words, math.inf, NEARLY, possible=MORE, beyond=beyond),
        )


def _core(f: Described, load: Interval) -> Share:
    """A full core, and what it works at, as far as the figures separate that."""
    busiest, whole = f.ends[f.is_target]
    busy = f"busiest core {load.mid:.0%} busy"
    if whole and not busiest:
        busy = f"all cores {whole.mid:.0%} busy"
        busy += "" if whole.mid >= NEARLY else ", as one full core would make them"
    part = min(1.0, f.cipher.mid) if f.cipher else 0.0
    work = "the cipher" if part >= 0.5 else "packets"
    if part:
        busy += f", the cipher {part:.0%}"
    elif not f.is_offloaded or not f.is_protected:
        work = f"packets and {f'cipher of {f.protection}' if f.is_protected else 'requests'}"
    whose = "the target's " if f.is_target else ""
    words = f"{whose}processor: {work} ({busy})"
    return Share(Limit.CRYPTO if part >= 0.5 else Limit.CPU, load, words, BUSY, NEARLY, others=("link",))
