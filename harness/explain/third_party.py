"""What limits a figure that somebody else measured, by what was told of the machine.

Each resource has a share: how full it is by the figure itself (the link: the data in full frames, with the
protection's; a window: the data of a round trip; one request at a time: the round trip in the time of one;
the disk: the same without a network) or by its load as told. A full one limits. What is above one is
impossible. Where something else than a processor is full, a protection was not loaded, and the figure says
nothing of it. Without enough of that, the answer is what would decide it, with the command that measures it.

docs/buying.md says how to use it, docs/scores.md how often it was right.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence

import msgspec

from harness.analysis import bounds, theory, wire
from harness.analysis.limit import Limit
from harness.analysis.wire import framings
from harness.explain.verdict import NEAR, Confidence
from harness.model import TRANSPORTS, IpsecMode, LinkProfile
from harness.model.protections import PROTECTIONS
from harness.model.units import format_duration, format_rate, format_size
from harness.parse.reported import Amount, Reported

NEARLY, BUSY = 0.85, 0.95
"""From which part on a link may be full (it is from ``bounds.FULL`` on), and a core is; below ``NEAR`` it is
not waited for."""

ALIKE, COSTS, TOO_DEAR = 0.95, 0.8, 0.1
"""With a protection this part of the clear figure is no difference; below the second one it is more than
framing and scatter; below the third it is seldom a cipher alone: losses, fragments or an offload at fault."""

FILLED_BIT_S, NEAR_BY_S = 25e9, 1e-3
"""Up to this rate and round trip TCP in clear fills a link by itself, as far as nothing else was told."""

PING = 2.0
"""How many times the round trip of I/Os in a row a ping takes at most: it wakes idle processors up."""

RADIO = 0.5
"""The part of a radio's rate that TCP gets at least where the air is full (802.11n to ax)."""

MORE, MANY = 1.1, 1.5
"""Several at once that reach at most so many times what one does share what is full; from the second on they
do not."""

SEEKS = 250
"""The most random I/Os per second of a disk that turns."""

HIGH, MEDIUM, LOW, NONE = Confidence


class AnswerKind(enum.StrEnum):
    """``masked``: the protection's cost is unknown, because something else is full."""

    LIMITED = "limited"
    IMPOSSIBLE = "impossible"
    MASKED = "masked"
    NOT_ENOUGH = "needs more data"


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The answer on one figure. ``shares`` are the known utilizations of resources; 1 is full. If the
    answer is masked, ``limited_by`` is what limits instead of the protection. ``decides`` are further
    measurements that would decide it, with their commands."""

    title: str
    answer: AnswerKind
    limited_by: Limit
    confidence: Confidence
    reason: str
    shares: dict[str, float] = {}
    decides: dict[str, str] = {}

    @property
    def sentence(self) -> str:
        by = " by" if self.answer is AnswerKind.LIMITED else ":"
        is_sure = self.answer in (AnswerKind.LIMITED, AnswerKind.MASKED)
        return f"{self.answer}{by} {self.reason}" + (f"; confidence {self.confidence}" if is_sure else "")


_Found = tuple[Limit, float, Confidence, str]
"""Something that limits by itself, how full it is, how sure that is, and in words."""


def judge_all(claim: Sequence[Reported]) -> list[Judged]:
    """All figures of a file. A protected one is compared with a clear one that has all else alike."""
    clear = {_alike(each): each for each in claim if each.protection and not _is_protected(each)}
    found = []
    for each in claim:
        other = clear.get(_alike(each)) if _is_protected(each) and each.unprotected is None else None
        taken = other and (other.throughput or other.iops)
        found.append(_Figure(msgspec.structs.replace(each, unprotected=taken) if taken else each).judged())
    return found


def _alike(claim: Reported) -> tuple[object, ...]:
    of = (claim.link, claim.mtu, claim.machine, claim.transport, claim.workload)
    return (*of, claim.block, claim.depth, claim.jobs, claim.streams)


_CLEAR = {"", "off", "none", "no", "clear", "plain", "plaintext", "false", "unencrypted"}


def _is_protected(claim: Reported) -> bool:
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
    is_esp = _is_protected(claim) and re.search("ipsec|esp|swan|ike", words)
    return next((theory.esp(a, mode) for p, a in _CIPHERS.items() if is_esp and re.search(p, words)), None)


def _rate(bytes_s: float) -> str:
    return format_rate(8 * bytes_s)


class _Figure:
    """One figure with what follows from it; rates are in bytes of data per second."""

    def __init__(self, claim: Reported) -> None:
        self.claim = claim
        words = f"{claim.workload} {claim.transport}".lower()
        named = re.search(r"(?<![0-9.])([0-9]+) ?([km])i?b?(?![a-z])", words)
        self.block = claim.block or (int(named[1]) * 1024 ** " km".index(named[2]) if named else None)
        self.is_random = "rand" in words
        self.is_both = re.search(r"\brw\b|mix|bidir|duplex|both|read.*write|write.*read", words) is not None
        known = next((name for name in TRANSPORTS if name.split("-")[0] in words), None)
        self.transport = wire.transport(known) if known else None
        self.is_storage = bool(
            known or self.block or re.search(r"fio|read|write|disk|volume|\bdd\b|copy|nfs|smb|ceph", words)
        )
        about = f"{words} {claim.machine} {claim.note}".lower()
        self.is_polling = re.search("spdk|dpdk|vpp|mayastor|poll", about) is not None
        self.is_protected = _is_protected(claim)
        self.protection = claim.protection.strip() or "the protection"
        self.is_offloaded = bool(claim.offload) or "null" in f"{claim.protection} {claim.algorithm}".lower()
        self.figure = claim.throughput or claim.iops
        self.rate = self.bytes_s(self.figure)
        self.in_flight = claim.depth and claim.depth * (claim.jobs or 1)
        self.link = format_rate(claim.link.rate_bit_s) if claim.link and claim.link.rate_bit_s else "the link"
        frames = f"{words} {claim.link.words if claim.link else ''}".lower()
        mtu = re.search(r"mtu\D{0,3}([0-9]{3,5})", frames)
        self.mtu = claim.mtu or (int(mtu[1]) if mtu else 9000 if "jumbo" in frames else None)
        self.carried = self.carries(self.mtu or 1500)
        self.local, self.cipher = self.bytes_s(claim.local), self.bytes_s(claim.cipher)
        self.ratio = self.times(claim.unprotected) if self.is_protected else None
        ends = (
            (claim.busiest_core, claim.processor),
            (claim.target_busiest_core, claim.target_processor),
        )
        loads = [self.core(*each) for each in ends]
        self.load = max((load for load in loads if load is not None), default=None)
        self.whose = "the target's " if self.load is not None and loads[0] != self.load else ""
        self.is_idle = self.load is not None and self.load < NEAR
        # One at a time, what a protection adds is in the time of each.
        self.is_in_turn = self.in_flight == 1 and self.ratio is not None and self.ratio < COSTS
        self.shares: dict[str, float] = {}
        self.found: list[_Found] = []

    def bytes_s(self, amount: Amount | None) -> float | None:
        if amount is None or (amount.is_io and self.block is None):
            return None
        return amount.value * (self.block or 0) if amount.is_io else amount.value

    def times(self, other: Amount | None) -> float | None:
        """How many times ``other`` the figure is; of two in I/Os whatever their size."""
        if self.figure is None or other is None:
            return None
        if self.figure.is_io and other.is_io:
            return self.figure.value / other.value
        rate, compared = self.rate, self.bytes_s(other)
        return rate / compared if rate and compared else None

    def carries(self, mtu_bytes: int, *, protected: bool = True, most: bool = False) -> float | None:
        """Data in full frames of TCP. ``most``: of any packets of that size, such as UDP's."""
        claim = self.claim.link
        if claim is None or claim.rate_bit_s is None:
            return None
        rate_bit_s = round(claim.rate_bit_s)
        link = LinkProfile(
            name="reported", title="", emulated=False, rate_bit_s=rate_bit_s, mtu_bytes=mtu_bytes
        )
        framing = _framing(self.claim, mtu_bytes) if protected else None
        goodput = bounds.goodput_bytes_per_s(link, framing)
        if claim.is_radio or goodput is None:
            return rate_bit_s / 8
        if most:
            goodput *= 1 + (theory.TCP_HEADER_BYTES - 8) / theory.Wire(link=link, framing=framing).mss_bytes
        elif self.transport is not None and self.block:
            goodput *= self.block / (self.block + self.transport.header_bytes({}, self.block))
        return goodput * (2 if self.is_both else 1)

    def core(self, busiest: float | None, whole: float | None) -> float | None:
        """How full an end's busiest core is, as far as known. 0.9 where the load of all of its cores is that
        of one that is full."""
        if self.is_polling or (busiest is None and whole is None):
            return None
        if busiest is not None or whole is None:
            return min(1.0, busiest or 0.0)
        together = whole * (self.claim.cores or math.inf)
        if whole >= NEARLY or together < NEAR:
            return min(1.0, whole) if whole >= NEARLY else together
        if self.claim.cores is None and whole < 0.05:
            return whole
        return 0.9 if NEARLY <= together < 1.3 else None

    def impossible(self) -> str:
        """Which figure cannot be, and by how much; empty if all can."""
        claim, framed = self.claim, f" in {self.protection}" if self.is_protected else ""
        jumbo = "" if self.mtu else ", even in frames of 9000 bytes"
        cache = "a cache on this side answered, or " if self.is_storage else ""
        for name, figure, within in (
            ("", claim.throughput or claim.iops, framed),
            ("the clear figure, ", claim.unprotected, ""),
            ("TCP by itself, ", claim.network, ""),
            ("several at once, ", claim.in_parallel, framed),
        ):
            rate = self.bytes_s(figure)
            most = self.carries(self.mtu or 9000, protected=bool(within), most=True)
            if most and figure and rate and rate * (1 - figure.step / figure.value / 2) > most * 1.002:
                more = f"{rate / most - 1:.1%} more than the {_rate(most)} of data that {self.link} carries"
                return f"{name}{_rate(rate)} is {more}{within}{jumbo}; {cache}the link or the unit is wrong"
        if claim.throughput and claim.iops and self.block and not claim.throughput.is_io:
            by_ios, rate = claim.iops.value * self.block, claim.throughput.value
            if not 0.9 < by_ios / rate < 1.1:
                ios = f"{claim.iops.value:g} I/Os of {format_size(self.block)} per second"
                return f"{ios} are {_rate(by_ios)}, not {_rate(rate)}"
        if self.rate and self.block and self.in_flight:
            each_s = self.in_flight * self.block / self.rate
            held = f"{self.in_flight} at a time, each I/O takes {format_duration(each_s)} at this rate"
            if claim.latency and claim.latency > 1.5 * each_s:
                return f"{held} (Little's law), and {format_duration(claim.latency)} were reported"
            if claim.round_trip and claim.round_trip > PING * each_s:
                trip = format_duration(claim.round_trip)
                return f"{held}, and a round trip {trip}: a cache answered, or more at a time"
        loads = [(load, math.inf) for load in (claim.busiest_core, claim.target_busiest_core)]
        for load, most in [*loads, (claim.processor, 1), (claim.target_processor, 1)]:
            if load and load > 1.05 * (claim.cores or most):
                return f"a load of {load:.0%} is more than {claim.cores or 'all'} cores have"
        return ""

    def share(
        self, name: str, cause: Limit, share: float, sure: Confidence, words: str, *within: float
    ) -> None:
        """How full something is. It limits from the first of ``within`` on, up to the second."""
        self.shares[name] = share
        least, most = (*within, math.inf)[:2]
        if least <= share <= most:
            self.found.append((cause, share, sure, words))

    def look(self) -> None:
        """Collect the shares, and in ``found`` all that is full, the surest first."""
        claim, rate, core = self.claim, self.rate, self.load
        link = rate / self.carried if rate and self.carried else None
        is_far = link is not None and link < NEARLY
        sure = HIGH if is_far and core is not None and core < NEARLY else MEDIUM
        if rate and link is not None:
            is_radio = claim.link is not None and claim.link.is_radio
            # Who waits for the link is not busy all the time: a full core is what fills it nearly.
            is_doubtful = link < bounds.FULL or is_radio or (core is not None and core >= BUSY)
            of = "of the radio" if is_radio else f"is {_rate(self.carried or 0)} of data"
            words = f"the link's rate ({_rate(rate)}; {self.link} {of})"
            least = RADIO if is_radio else NEARLY
            self.share("link", Limit.LINK, link, MEDIUM if is_doubtful else HIGH, words, least)
        if core is not None:
            self.shares["core"] = core
            if core >= NEARLY:
                self.found.append(self.work(core, HIGH if core >= BUSY and is_far else MEDIUM))
        if rate and (trip_s := claim.round_trip):
            trip, streams = format_duration(trip_s), claim.streams or 1
            if claim.window:
                share = rate * trip_s / (claim.window * streams)
                words = f"the window ({format_size(claim.window)} in {trip} a stream)"
                self.share("window", Limit.WINDOW, share, sure if share < 1.2 else MEDIUM, words, COSTS)
            if self.block and self.in_flight:
                share = rate * trip_s / (self.block * self.in_flight)
                each = f"{trip} of the {format_duration(trip_s / share)} of each I/O"
                words = f"the round trip ({each}, {self.in_flight} at a time)"
                near = sure if COSTS <= share <= 1.2 else MEDIUM
                least = 0.5 if self.in_flight == 1 else NEAR
                self.share("round trip", Limit.ROUND_TRIP, share, near, words, least)
            if claim.loss and not self.is_storage:
                # Mathis et al., 1997: what Reno reaches; CUBIC is near it where round trips are short.
                segment = (self.mtu or 1500) - theory.IP_HEADER_BYTES[4] - theory.TCP_HEADER_BYTES
                most = streams * 1.22 * segment / (trip_s * math.sqrt(claim.loss))
                words = f"packet loss (at {claim.loss:.2%} TCP reaches {_rate(most)} there)"
                self.share("loss", Limit.LOST_PACKETS, rate / most, MEDIUM, words, NEAR, PING)
        if share := self.times(claim.local) or 0.0:
            words = f"the disk ({share:.2f} of its stand-alone rate)"
            self.share("disk", Limit.DEVICE, share, sure, words, NEARLY, 1.2)
        network = self.bytes_s(claim.network)
        if rate and network and not self.is_protected:
            words = f"TCP's rate without storage ({_rate(network)})"
            least = math.inf if self.found else NEARLY
            self.share("TCP by itself", Limit.LINK, rate / network, MEDIUM, words, least)
        if claim.link and claim.link.is_memory and not self.is_storage and not self.found:
            work = f"the processors' work{f' for {self.protection}' if self.is_protected else ''}"
            self.found.append((Limit.CPU, 1.0, MEDIUM, f"{work}: nothing else is on the path"))
        turns = re.search(r"hdd|spinning|rotat|[57][.,]?[24]00|1[05]k", claim.disk.lower())
        if turns and self.is_random and self.block and rate and rate / self.block <= SEEKS:
            self.found.append((Limit.DEVICE, 1.0, MEDIUM, "the disk's seeks (75 to 200 I/Os a second)"))
        self.found.sort(key=lambda each: (list(Confidence).index(each[2]), -min(1.0, each[1])))
        if len(self.found) > 1 and self.found[1][2] is HIGH:
            self.found[0] = (*self.found[0][:2], MEDIUM, self.found[0][3])

    def work(self, core: float, sure: Confidence) -> _Found:
        """What a full core works at, as far as the figures separate that."""
        claim = self.claim
        cipher = self.rate / self.cipher if self.rate and self.cipher and not self.is_offloaded else None
        busiest = claim.target_busiest_core if self.whose else claim.busiest_core
        whole = (claim.target_processor if self.whose else claim.processor) or 0.0
        busy = f"busiest core {core:.0%} busy" if busiest else f"all cores {whole:.0%} busy"
        busy += "" if busiest or whole >= NEARLY else ", as one full core would make them"
        if not self.is_protected or self.is_offloaded:
            what = f"packets{'' if self.is_protected else ' and requests'} ({busy})"
        elif cipher is not None:
            self.shares["cipher"] = cipher
            what = (
                f"{'the cipher' if cipher >= 0.5 else 'packets'} ({busy}, the cipher {min(1.0, cipher):.0%})"
            )
        else:
            least = f", at least {1 - self.ratio:.0%} with that" if self.ratio and self.ratio < 1 else ""
            what = f"packets and cipher of {self.protection} ({busy}{least})"
        is_cipher = self.is_protected and cipher is not None and cipher >= 0.5
        return Limit.CRYPTO if is_cipher else Limit.CPU, core, sure, f"{self.whose}processor: {what}"

    def judged(self) -> Judged:
        if words := self.impossible():
            return self.say(AnswerKind.IMPOSSIBLE, Limit.UNKNOWN, HIGH, words)
        self.look()
        if self.found:
            cause, _, sure, words = self.found[0]
            if cause in (Limit.CPU, Limit.CRYPTO) or not self.is_protected:
                return self.limited(cause, sure, words)
            if not self.is_in_turn:
                return self.masked(cause, sure, words)
        elif self.claim.throughput is None and self.claim.iops is None:
            return self.not_enough("no figure was reported")
        by_cipher = self.by_cipher() if self.ratio is None or self.ratio < COSTS else None
        by_clear = by_cipher or self.by_ratio(self.ratio) or self.by_more_at_once()
        return by_clear or self.alone() or self.by_link() or self.not_enough(self.nothing_full())

    def by_ratio(self, ratio: float | None) -> Judged | None:
        """What the clear figure says of the protected one, where nothing is known to be full."""
        if ratio is None:
            return None
        link, mtu = self.shares.get("link", 0.0), self.mtu or 1500
        framed = min(1.0, (self.carries(mtu) or 1.0) / (self.carries(mtu, protected=False) or 1.0))
        if ratio >= ALIKE * framed:
            words = f"with it, it is {ratio:.2f} of the clear figure, so something else limits both"
            return self.masked(Limit.UNKNOWN, MEDIUM, words)
        takes = f"{self.protection} takes {1 - ratio:.0%}"
        if not self.is_in_turn and (ratio < TOO_DEAR or self.is_idle):
            why = "more than most ciphers: losses, fragments or an offload may be at fault"
            if ratio >= TOO_DEAR:
                why = f"and the busiest core that was reported is {self.load:.0%} busy"
            return self.not_enough(f"{takes}, {why}", "load", "losses", "offload")
        if ratio >= COSTS and link / ratio * framed < NEARLY:
            return None
        how = "the link is not full" if link else "nothing else is known to be full"
        how = "each request waits for that" if self.is_in_turn else how
        words = f"the processors' work for {self.protection} ({ratio:.2f} of the clear figure; {how})"
        return self.limited(Limit.CPU, MEDIUM if ratio < COSTS and 0 < link < COSTS else LOW, words)

    def by_cipher(self) -> Judged | None:
        if not self.is_protected or not self.rate or not self.cipher or self.is_offloaded:
            return None
        share = self.shares["cipher"] = self.rate / self.cipher
        words = f"one core's cipher ({share:.0%} of its stand-alone rate)"
        return self.limited(Limit.CRYPTO, MEDIUM, words) if NEAR <= share <= 1.1 else None

    def by_more_at_once(self) -> Judged | None:
        """What several at once say of one."""
        part, link = self.times(self.claim.in_parallel), self.shares.get("link", 0.0)
        if not part:
            return None
        if part >= 1 / MORE and self.is_protected and 0 < link < NEARLY:
            words = "one core's work for one tunnel (more streams are no faster, the link is not full)"
            return self.limited(Limit.CPU, LOW if self.load is None else MEDIUM, words)
        if part > 1 / MANY:
            return None
        grows = f"several at once reach {1 / part:.1f} times as much, so nothing they share is full"
        if self.is_storage:
            words = f"how few requests are in flight ({grows})"
            return self.limited(Limit.LATENCY, MEDIUM, words)
        if (self.claim.round_trip or 0.0) > NEAR_BY_S:
            return self.limited(Limit.WINDOW, LOW, f"one stream's window, or losses ({grows})")
        if self.is_idle:
            return None
        words = f"one core's work for one {'tunnel' if self.is_protected else 'stream'} ({grows})"
        return self.limited(Limit.CPU, MEDIUM if self.is_protected else LOW, words)

    def alone(self) -> Judged | None:
        """One request at a time: the parts of its time."""
        if self.in_flight != 1 or not self.block or not self.rate or self.shares.get("link", 0.0) >= NEAR:
            return None
        time_s = self.block / self.rate
        parts = {
            Limit.DEVICE: ("the disk", self.block / self.local if self.local else 0.0),
            Limit.ROUND_TRIP: ("the round trip", self.claim.round_trip or 0.0),
            Limit.LINK: ("sending", self.block / self.carried if self.carried else 0.0),
        }
        most = max(parts, key=lambda cause: parts[cause][1])
        said = "".join(f", {name} {format_duration(part)}" for name, part in parts.values() if part)
        cause = most if parts[most][1] >= 0.5 * time_s else Limit.LATENCY
        words = f"one request at a time ({format_duration(time_s)} each{said})"
        return self.limited(cause, MEDIUM, words)

    def by_link(self) -> Judged | None:
        """What a figure far below the link's rate suggests, where nothing else was told."""
        claim, share = self.claim.link, self.shares.get("link", 0.0)
        is_filled = claim is not None and 0 < (claim.rate_bit_s or 0.0) <= FILLED_BIT_S
        is_work = self.is_protected and not self.is_offloaded and not self.is_storage and not self.is_idle
        trip, is_full = self.claim.round_trip or 0.0, share >= COSTS
        if trip > NEAR_BY_S and not (is_full or self.is_protected or self.is_storage) and share > 0:
            flying = format_size((self.rate or 0.0) * trip)
            words = f"one stream's window, or losses ({flying} in each {format_duration(trip)})"
            return self.limited(Limit.WINDOW, LOW, words)
        if not (is_filled and is_work and TOO_DEAR <= share < COSTS) or trip > NEAR_BY_S:
            return None
        words = f"the processors' work for {self.protection}, if the clear figure fills the link"
        return self.limited(Limit.CPU, LOW, words)

    def nothing_full(self) -> str:
        parts = [f"{_rate(self.rate)} of data" if self.rate else "I/Os of unknown size"]
        parts += [f"{name} {share:.0%}" for name, share in self.shares.items()]
        if self.is_polling and (self.claim.busiest_core or self.claim.processor):
            parts.append("a core that polls is always busy")
        return f"{', '.join(parts)}: nothing that was reported is full"

    def masked(self, cause: Limit, sure: Confidence, words: str) -> Judged:
        said = f"{words}: {self.protection} was not under load, so its cost is unknown"
        return self.say(AnswerKind.MASKED, cause, sure, said, "faster")

    def limited(self, cause: Limit, sure: Confidence, words: str) -> Judged:
        return self.say(AnswerKind.LIMITED, cause, sure, words)

    def not_enough(self, words: str, *first: str) -> Judged:
        return self.say(AnswerKind.NOT_ENOUGH, Limit.UNKNOWN, NONE, words, *first)

    def say(self, answer: AnswerKind, cause: Limit, sure: Confidence, words: str, *first: str) -> Judged:
        is_open = sure is not HIGH or answer is AnswerKind.MASKED
        return Judged(
            title=self.claim.title or self.claim.workload,
            answer=answer,
            limited_by=cause,
            confidence=sure,
            reason=words,
            shares={name: round(share, 4) for name, share in self.shares.items()},
            decides=self.decides(first, 4 if answer is AnswerKind.NOT_ENOUGH else 2) if is_open else {},
        )

    def decides(self, first: Sequence[str], most: int) -> dict[str, str]:
        """What would tell more: ``first``, then what was not told, the most telling first."""
        claim, storage = self.claim, self.is_storage
        lacks = {
            "load": claim.busiest_core is None or claim.target_busiest_core is None,
            "link": self.carried is None,
            "clear": self.is_protected and self.ratio is None,
            "local": storage and claim.local is None,
            "depth": storage and self.in_flight is None,
            "parallel": claim.in_parallel is None,
            "round trip": claim.round_trip is None,
            "cipher": self.is_protected and claim.cipher is None and not self.is_offloaded,
            "window": claim.window is None and not storage,
        }
        names = [name for name in first if lacks.get(name, True)]
        names += (name for name, is_lacking in lacks.items() if is_lacking and name not in first)
        rw = f"--rw={'rand' if self.is_random else ''}read --bs={self.block or 4096}"
        said_more = [DECIDES[name] for name in names[:most]]
        return {
            what.replace("PROTECTION", self.protection): (of_disks if storage else of_links).replace("RW", rw)
            for what, of_links, of_disks in ((w, n, d or n) for w, n, d in said_more)
        }


_FIO = "fio --name=x --filename=DISK --readonly --direct=1 RW"
DECIDES = {
    "load": ("each core's load at both ends meanwhile", "mpstat -P ALL 1", ""),
    "link": ("the link's rate and MTU", "ethtool DEV; ip link show DEV", ""),
    "clear": ("the same without PROTECTION", "iperf3 -c HOST", "harness run --protect off,..."),
    "local": ("the disk by itself, on the target", _FIO, ""),
    "depth": ("how many requests are in flight", "iostat -x 1", ""),
    "parallel": ("more at once", "iperf3 -c HOST -P 8", f"{_FIO} --ioengine=libaio --iodepth=32"),
    "round trip": ("the round trip, pinged in quick succession", "ping -i 0.002 -c 1000 HOST", ""),
    "cipher": ("the cipher by itself on one core", "openssl speed -evp aes-128-gcm -bytes 1420", ""),
    "window": ("the window, and what is in flight", "ss -ti", ""),
    "losses": ("retransmissions and fragments", "nstat -az TcpRetransSegs IpFragCreates IpReasmFails", ""),
    "offload": ("the same without segmentation offloads", "ethtool -K DEV gro off gso off tso off", ""),
    "faster": (
        "PROTECTION where nothing else is full",
        "harness run --link wired:unshaped --protect ...",
        "",
    ),
}
"""What would decide it, and the command that measures it, of a network and of storage."""


def lines(found: Sequence[Judged]) -> list[str]:
    """Each figure with its answer, and what would decide it."""
    said = []
    for each in found:
        said.append(f"{each.title}: {each.sentence}" if each.title else each.sentence)
        said += [f"  to find out, measure {what}: {command}" for what, command in each.decides.items()]
    return said
