"""What follows from the words of a figure that somebody else measured: what its link carries (as negotiated
or shared, in frames of its protocol and protection), how busy a core is, how long each I/O takes."""

from __future__ import annotations

import math
import re
from functools import cached_property

from harness.analysis import bounds, theory, wire
from harness.analysis.interval import Interval, exact
from harness.analysis.wire import framings
from harness.model import TRANSPORTS, IpsecMode, LinkProfile
from harness.model.protections import PROTECTIONS, UDP_HEADER_BYTES
from harness.model.units import format_rate
from harness.parse.quantities import IOS, PACKETS
from harness.parse.reported import Amount, Reported

SHARED = 0.5
"""The part of its rate that TCP gets at least of a medium that both directions share (802.11n to ax)."""

JUMBO = 9000

NEARLY, BUSY = 0.85, 0.95
"""From which part on a resource may be full, and from which a core is; a link is from ``bounds.FULL`` on."""

ALIKE, COSTS, TOO_DEAR = 0.95, 0.8, 0.1
"""With a protection this part of the clear figure is no difference; below the second one it is more than
framing and scatter; below the third it is seldom a cipher alone: losses, fragments or an offload at fault."""

NEAR_BY_S = 1e-3
"""The longest round trip of a path near by."""

_CLEAR = {"", "off", "none", "no", "clear", "plain", "plaintext", "false", "unencrypted"}
IPV6_MTU = 1280
"""RFC 8200, section 5: the least that a tunnel of IPv6 has."""


def is_protected(claim: Reported) -> bool:
    """Whether a protection was reported that is not "off" in some words."""
    return claim.protection.strip().lower() not in _CLEAR


_CIPHERS = {
    "gcm": ("rfc4106(gcm(aes))",),
    "chacha": ("rfc7539esp(chacha20,poly1305)",),
    "null": ("ecb(cipher_null)", "hmac(sha1)"),
    "3des": ("cbc(des3_ede)", "hmac(sha1)"),
    "sha2|sha-?256|sha-?512": ("cbc(aes)", "hmac(sha256)"),
    "sha|cbc|aes": ("cbc(aes)", "hmac(sha1)"),
    "ipsec|esp|swan|ike": ("rfc4106(gcm(aes))",),
}
"""By what a protection's words have, the first that fits: the kernel's algorithms of ESP. Where none is named
it is one with few bytes, and transport mode, so that nothing is called impossible by mistake."""


def _framing(claim: Reported, mtu_bytes: int) -> theory.Framing | None:
    words = f"{claim.protection} {claim.algorithm}".lower()
    mode = IpsecMode.TUNNEL if "tunnel" in words else IpsecMode.TRANSPORT
    for name, each in PROTECTIONS.items():
        if name in words and not each.pre_existing:
            return framings.of((name,), {}, mode, mtu_bytes)
    is_esp = is_protected(claim) and re.search("ipsec|esp|swan|ike", words)
    return next((theory.esp(a, mode) for p, a in _CIPHERS.items() if is_esp and re.search(p, words)), None)


def words_of(claim: Reported) -> str:
    """What was done, and over which protocol."""
    return f"{claim.workload} {claim.transport}".lower()


def block_of(claim: Reported) -> int | None:
    """Bytes of an I/O, also as part of the workload's name (``rand-read-4k``)."""
    named = re.search(r"(?<![0-9.])([0-9]+) ?([km])i?b?(?![a-z])", words_of(claim))
    return claim.block or (int(named[1]) * 1024 ** " km".index(named[2]) if named else None)


def streams_of(claim: Reported) -> int | None:
    """How many there are at once, also as an option of iperf (``-P 8``)."""
    named = re.search(
        r"-p ?([0-9]{1,4})\b|\b([0-9]{1,4}) (?:parallel )?(?:streams|connections|flows)", words_of(claim)
    )
    return claim.streams or (int(named[1] or named[2]) or None if named else None)


def link_mtu(claim: Reported) -> int | None:
    """The link's, as reported; that of a tunnel is below it."""
    about = f"{words_of(claim)} {claim.link.words if claim.link else ''}".lower()
    named = re.search(r"mtu\D{0,3}([0-9]{3,5})", about)
    mtu = claim.mtu or (int(named[1]) if named else 9000 if "jumbo" in about else None)
    return 1500 if mtu and is_protected(claim) and IPV6_MTU <= mtu < 1500 else mtu


_TCP = r"\btcp|iperf|\bnfs|\bsmb|cifs|\bssh|sftp|\bscp|rsync|http|\bftp"


def is_tcp(claim: Reported) -> bool:
    """Whether the protocol runs over TCP; iperf does unless it says UDP."""
    about = f"{words_of(claim)} {claim.protection}".lower()
    is_known = transport_of(claim) is not None or re.search(_TCP, about) is not None
    return is_known and not re.search(r"udp|rdma|roce|infiniband", about)


def _is_both(claim: Reported) -> bool:
    return re.search(r"\brw\b|mix|bidir|duplex|both|read.*write|write.*read", words_of(claim)) is not None


def transport_of(claim: Reported) -> wire.WireProtocol | None:
    """The protocol whose headers are known."""
    name = next((name for name in TRANSPORTS if name.split("-")[0] in words_of(claim)), None)
    return wire.transport(name) if name else None


def carries(claim: Reported, *, protected: bool = True, mtu_bytes: int | None = None) -> Interval | None:
    """Bytes of data per second that the link carries in full frames: TCP's with timestamps (RFC 7323), and at
    most without, or UDP's unless TCP was reported. One connection has one link of a bond."""
    link, mtu_bytes = claim.link, mtu_bytes or link_mtu(claim) or 1500
    if link is None or link.rate_bit_s is None:
        return None
    all_bytes_s = link.rate_bit_s / 8
    if claim.packet:
        # The size of the frame, as in RFC 2544, or of UDP's data.
        most = claim.packet / (claim.packet + 20)
        part = Interval(claim.packet / (claim.packet + 66), most, most)
    elif link.is_radio:
        part = exact(1.0)
    else:
        profile = LinkProfile(
            name="reported", title="", emulated=False, rate_bit_s=round(link.rate_bit_s), mtu_bytes=mtu_bytes
        )
        framing = _framing(claim, mtu_bytes) if protected else None
        goodput = bounds.goodput_bytes_per_s(profile, framing)
        if not goodput:
            return None
        mss = theory.Wire(link=profile, framing=framing).mss_bytes
        spare = theory.TCP_HEADER_BYTES - (20 if is_tcp(claim) else UDP_HEADER_BYTES)
        transport, block = transport_of(claim), block_of(claim)
        data = block / (block + transport.header_bytes({}, block)) if transport and block else 1.0
        most = goodput / all_bytes_s
        least = 1 + spare / mss if "udp" in words_of(claim) else data
        part = Interval(most * least, most * least, most * (1 + spare / mss))
    if link.is_radio or link.is_half:
        part = Interval(part.low * SHARED, part.mid * (1 + SHARED) / 2, part.high)
    elif _is_both(claim):
        part = part.times(2)
    one = 1 / link.members
    used = min(1.0, (claim.streams or 1) * one)
    return part.by(Interval(one, used, 1.0)).times(all_bytes_s)


class Described:
    """One figure with what follows from its words; rates are in bytes of data per second."""

    def __init__(self, claim: Reported) -> None:
        self.claim, self.block, words = claim, block_of(claim), words_of(claim)
        about = f"{words} {claim.machine} {claim.note} {claim.disk}".lower()
        self.about = about
        self.is_random, self.is_tcp, self.mtu = (
            "rand" in words,
            is_tcp(claim),
            link_mtu(claim),
        )
        named = r"fio|read|write|disk|volume|\bdd\b|copy|nfs|smb|ceph"
        self.is_storage = bool(transport_of(claim) or self.block or re.search(named, words))
        self.is_polling = re.search("spdk|dpdk|vpp|mayastor|poll", about) is not None
        self.turns = (
            re.search(r"hdd|spinning|hard disk|rotat|[57][.,]?[24]00|1[05]k", claim.disk.lower()) is not None
        )
        several = re.search(r"\b([0-9]{1,3}) ?[x*]", claim.disk)
        is_array = re.search("raid|array|pool|disks|drives", claim.disk.lower()) is not None
        self.disks = float(several[1]) if several else math.inf if is_array else 1.0
        self.is_sync = re.search(r"d?sync\b|flush", words) is not None
        uncached = (
            r"(no|without|un)[ -]?cach|cache[ds]? ?(is |are |=)?(off|none)|(larger|more) than (memory|ram)"
        )
        self.is_uncached = re.search(uncached, about.replace(" the ", " ")) is not None
        self.is_protected = is_protected(claim)
        self.protection = claim.protection.strip() or "the protection"
        self.is_offloaded = bool(claim.offload) or "null" in f"{claim.protection} {claim.algorithm}".lower()
        self.figure = claim.throughput or claim.iops
        self.rate = self.bytes_s(self.figure)
        # dd has one request in flight, and so has each job of fio's engines that wait.
        depth = claim.depth or (1 if re.search(r"\bdd\b.*(sync|direct)|psync", words) else None)
        self.in_flight = depth and depth * (claim.jobs or 1)
        self.link = format_rate(claim.link.rate_bit_s) if claim.link and claim.link.rate_bit_s else "the link"
        self.carried = carries(claim)
        ratio = self.times(claim.unprotected) if self.is_protected else None
        self.ratio = ratio.mid if ratio else None
        own = self.core(claim.busiest_core, claim.processor)
        target = self.core(claim.target_busiest_core, claim.target_processor)
        self.load = own.most(target) if own and target else own or target
        self.is_target = target is not None and (own is None or target.mid > own.mid)
        # One at a time, what a protection adds is in the time of each.
        self.is_in_turn = self.in_flight == 1 and self.ratio is not None and self.ratio < COSTS

    def bytes_s(self, other: Amount | None) -> Interval | None:
        """Bytes of data per second; None where the size of an I/O or packet is not known."""
        each = {IOS: self.block, PACKETS: self.claim.packet}.get(other.unit, 1) if other else None
        return other.value.times(each) if other and each else None

    @property
    def ios(self) -> Interval | None:
        """I/Os per second."""
        if self.figure and self.figure.unit == IOS:
            return self.figure.value
        return self.rate.times(1 / self.block) if self.rate and self.block else None

    def times(self, other: Amount | None) -> Interval | None:
        """How many times ``other`` the figure is; of two in I/Os whatever their size."""
        if self.figure is None or other is None:
            return None
        if self.figure.unit == other.unit:
            return self.figure.value.over(other.value)
        rate, compared = self.rate, self.bytes_s(other)
        return rate.over(compared) if rate and compared else None

    def core(self, busiest: Interval | None, whole: Interval | None) -> Interval | None:
        """How full an end's busiest core is: at least as full as all are on average, at most as full as the
        load of all in one."""
        if self.is_polling:
            return None
        if busiest is not None or whole is None:
            return busiest and busiest.rising(lambda load: min(1.0, load))
        together = whole.times(self.claim.cores) if self.claim.cores else None
        most = min(1.0, together.high if together else 1.0)
        # The load of one full core is probably that.
        is_one = together is not None and NEARLY <= together.mid < 1.3
        return Interval(min(1.0, whole.low), most if is_one else min(1.0, whole.mid), most)

    @property
    def path_s(self) -> Interval:
        """The round trip; of one that was not reported, that of a path near by."""
        return self.claim.round_trip or Interval(0.0, NEAR_BY_S / 2, NEAR_BY_S)

    @cached_property
    def each_s(self) -> Interval | None:
        """The time of each I/O by Little's law, or as reported."""
        if self.rate and self.block and self.in_flight:
            return exact(self.block * self.in_flight).over(self.rate)
        return self.claim.latency
