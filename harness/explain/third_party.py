"""What limits a figure that somebody else measured, by what was reported of the machine.

Each resource of ``RESOURCES`` has a share, an interval of how full it may be: by the figure itself (the link:
the data in full frames, with the protection's; a window: the data of a round trip; the disk: the same without
a network) or by its reported load. One that is full limits, if no other is. Where two may be, the answer is
what would decide it, with the command that measures it. More than a protocol, a disk or TCP gives is
impossible. Where something else than a processor is full, a protection was not loaded, and the figure says
nothing of it.

docs/buying.md says how to use it, docs/scores.md how often it was right.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from harness.analysis.interval import Interval, exact
from harness.analysis.limit import Limit
from harness.explain import described
from harness.explain.described import ALIKE, BUSY, COSTS, NEAR_BY_S, NEARLY, TOO_DEAR, Described
from harness.explain.resources import (
    CLOCK,
    MANY,
    MORE,
    Shares,
    bytes_text,
    cipher_share,
    contradictions,
    look,
    rate_text,
)
from harness.explain.verdict import NEAR, Confidence
from harness.model.units import format_duration, format_size
from harness.parse.reported import PARTS, READ, Amount, Reported, amount

FILLED_BIT_S, SLOWEST_BIT_S = 25e9, 1e8
"""Up to this rate TCP in clear fills a link near by, as far as nothing else was reported;
the second is the least of such a link."""

WORK = {Limit.CPU, Limit.CRYPTO}
"""What a protection may be the cause of."""

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
    measurements that would decide it, with their commands; ``unused`` is what was not understood."""

    title: str
    answer: AnswerKind
    limited_by: Limit
    confidence: Confidence
    reason: str
    shares: dict[str, Interval] = {}
    decides: dict[str, str] = {}
    unused: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        by = " by" if self.answer is AnswerKind.LIMITED else ":"
        is_sure = self.answer in (AnswerKind.LIMITED, AnswerKind.MASKED)
        return f"{self.answer}{by} {self.reason}" + (f"; confidence {self.confidence}" if is_sure else "")


class _Said(NamedTuple):
    """An answer's parts; ``first`` names in ``DECIDES`` what would decide it before all else."""

    answer: AnswerKind
    limit: Limit
    sure: Confidence
    words: str
    first: tuple[str, ...] = ()


def _limited(_: Described, limit: Limit, sure: Confidence, words: str) -> _Said:
    return _Said(AnswerKind.LIMITED, limit, sure, words)


def _not_enough(words: str, *first: str) -> _Said:
    return _Said(AnswerKind.NOT_ENOUGH, Limit.UNKNOWN, NONE, words, first)


def judge_all(claim: Sequence[Reported]) -> list[Judged]:
    """All figures of a file. A protected one is compared with a clear one that has all else alike."""
    found = []
    for each in claim:
        if described.is_protected(each) and each.unprotected is None:
            clear = [
                e for e in claim if e.protection and not described.is_protected(e) and _is_alike(each, e)
            ]
            below = {id(e): (described.link_mtu(e) or 1500) - (each.mtu or e.mtu or 1500) for e in clear}
            pairs = [e for e in clear if e.mtu == each.mtu or 0 <= below[id(e)] <= 1500 - described.IPV6_MTU]
            other = min(pairs, key=lambda e: e.mtu != each.mtu, default=None)
            known = other and (other.throughput or other.iops)
            why = [f"the clear figure: it has an MTU of {e.mtu}" for e in clear[:1] if not pairs]
            each = msgspec.structs.replace(each, unprotected=known, unused=(*each.unused, *why))
        found.append(_judged(Described(_whole(each, claim))))
    return found


def _is_alike(claim: Reported, clear: Reported) -> bool:
    """A tunnel's MTU is not another link's."""
    alike = ("link", "machine", "transport", "workload", "block", "depth", "jobs", "streams")
    return all(getattr(claim, key) == getattr(clear, key) for key in alike)


def _whole(claim: Reported, among: Sequence[Reported]) -> Reported:
    """Each figure that was reported as a part of another, by itself; unused where there is no other."""
    known: dict[str, Amount | None] = {key: getattr(claim, key) for key in READ if READ[key] is amount}
    titles = {each.title.lower(): each.throughput or each.iops for each in among if each.title}
    unused, changed = claim.unused, dict[str, Amount | None]()
    for key, each in known.items():
        if each is None or each.unit != PARTS:
            continue
        link = described.carries(claim) if each.part_of == "link" else None
        other = Amount(link) if link else known.get(each.part_of) or titles.get(each.part_of.lower())
        is_known = other is not None and other.unit != PARTS
        changed[key] = Amount(each.value.by(other.value), other.unit) if other and is_known else None
        if not is_known:
            unused += (f"{key}: a part of {each.part_of}, of which there is no figure",)
    return msgspec.structs.replace(claim, unused=unused, streams=described.streams_of(claim), **changed)


def _by_resources(f: Described, found: Shares) -> _Said | None:
    """What is full, or nearly, if that is one alone."""
    names = found.first
    limits = {found.limit(name) for name in names}
    if len(limits) > 1:
        both = " and ".join(found.used[name][1].words for name in names)
        return _not_enough(f"each of these may limit: {both}", "load", "parallel")
    if not names or (f.is_in_turn and not limits & WORK):
        return None
    resource, use = found.used[names[0]]
    is_alone = not (found.open or (found.full and found.nearly))
    is_known = all(found.is_below(each, NEARLY) for each in resource.others)
    sure = HIGH if found.full and is_alone and is_known else MEDIUM
    say = _masked if f.is_protected and not limits & WORK else _limited
    return say(f, limits.pop(), sure, use.words)


def _masked(f: Described, limit: Limit, sure: Confidence, words: str) -> _Said:
    said = f"{words}: {f.protection} was not under load, so its cost is unknown"
    return _Said(AnswerKind.MASKED, limit, sure, said, ("faster",))


def _alike(f: Described, found: Shares) -> _Said | None:
    """As fast as in clear, so something else limits both."""
    bare = described.carries(f.claim, protected=False)
    framed = f.carried.mid / bare.mid if f.carried and bare else 1.0
    if f.ratio is None or f.ratio < ALIKE * min(1.0, framed):
        return None
    words = f"with it, it is {f.ratio:.2f} of the clear figure, so something else limits both"
    limits = {found.limit(name) for name in found.first}
    if len(limits) == 1 and not limits & WORK:
        return _by_resources(f, found)
    full = ", ".join(f"{name} {found.share(name).mid:.0%}" for name in found.first)
    limit = Limit.CPU if limits and limits <= WORK else Limit.UNKNOWN
    return _masked(f, limit, MEDIUM, words + (f" ({full})" if full else ""))


def _by_cipher(f: Described, _: Shares) -> _Said | None:
    share = cipher_share(f) if f.ratio is None or f.ratio < COSTS else None
    if share is None or not NEAR <= share.mid <= MORE:
        return None
    return _limited(f, Limit.CRYPTO, MEDIUM, f"one core's cipher ({share.mid:.0%} of its stand-alone rate)")


def _is_idle(f: Described) -> bool:
    """Whether no core of those that were reported can be full."""
    return f.load is not None and f.load.high < BUSY


def _by_ratio(f: Described, found: Shares) -> _Said | None:
    """What the clear figure says of the protected one, where nothing is known to be full."""
    ratio, link = f.ratio, found.share("link").mid
    if ratio is None:
        return None
    takes = f"{f.protection} takes {1 - ratio:.0%}"
    if not f.is_in_turn and (ratio < TOO_DEAR or _is_idle(f)):
        why = "more than most ciphers: losses, fragments or an offload may be at fault"
        if ratio >= TOO_DEAR and f.load:
            why = f"and no core that was reported is more than {f.load.high:.0%} busy"
        return _not_enough(f"{takes}, {why}", "load", "losses", "offload")
    if ratio >= COSTS and link / ratio < NEARLY:
        return None
    how = "the link is not full" if link else "nothing else is known to be full"
    how = "each request waits for that" if f.is_in_turn else how
    words = f"the processors' work for {f.protection} ({ratio:.2f} of the clear figure; {how})"
    return _limited(f, Limit.CPU, MEDIUM if ratio < COSTS and 0 < link < COSTS else LOW, words)


def _by_more_at_once(f: Described, found: Shares) -> _Said | None:
    """What several at once say of one."""
    times, link = f.times(f.claim.in_parallel), found.share("link").mid
    if times is None:
        return None
    part, trip = times.mid, f.claim.round_trip or exact(0.0)
    if part >= 1 / MORE and f.is_protected and 0 < link < NEARLY and not _is_idle(f):
        words = "one core's work for one tunnel (more streams are no faster, the link is not full)"
        return _limited(f, Limit.CPU, LOW if f.load is None else MEDIUM, words)
    if part > 1 / MANY:
        return None
    grows = f"several at once reach {1 / part:.1f} times as much, so nothing they share is full"
    if f.is_storage:
        return _limited(f, Limit.LATENCY, MEDIUM, f"how few requests are in flight ({grows})")
    if trip.mid > NEAR_BY_S:
        return _limited(f, Limit.WINDOW, LOW, f"one stream's window, or losses ({grows})")
    words = f"one core's work for one {'tunnel' if f.is_protected else 'stream'} ({grows})"
    return None if _is_idle(f) else _limited(f, Limit.CPU, MEDIUM if f.is_protected else LOW, words)


def _by_time(f: Described, found: Shares) -> _Said | None:
    """The parts of an I/O's time: what the path does not take is the target's (Little's law)."""
    each, link = f.each_s, f.carried or exact(SLOWEST_BIT_S / 8)
    if not (each and math.isfinite(each.high) and f.rate and f.block) or found.share("link").mid >= NEAR:
        return None
    depth = f.in_flight or max(1.0, each.mid * f.rate.mid / f.block)
    use, trip = min(1.0, f.rate.mid / link.mid), f.path_s
    if depth == 1:
        local = f.bytes_s(f.claim.local)
        parts = {
            Limit.DEVICE: ("the disk", f.block / local.mid if local else 0.0),
            Limit.ROUND_TRIP: ("the round trip", trip.mid if f.claim.round_trip else 0.0),
            Limit.LINK: ("sending", f.block / f.carried.mid if f.carried else 0.0),
        }
        most = max(parts, key=lambda limit: parts[limit][1])
        said = "".join(f", {name} {format_duration(part)}" for name, part in parts.values() if part)
        words = f"one request at a time ({format_duration(each.mid)} each{said})"
        if parts[most][1] >= 0.5 * each.mid:
            return _limited(f, most, MEDIUM, words)
    # Requests wait for those before them on the link: for none, for half, or for all of them.
    waits = Interval(use / depth, use * (1 + 1 / depth) / 2, use)
    path = waits.plus(trip.times(1 / each.mid))
    rest = path.falling(lambda part: 1 - part)
    what = f"{format_duration(each.mid)} each, {depth:.0f} at a time"
    if rest.mid >= NEAR and rest.low >= 0.5 and not f.is_protected:
        near = "" if f.claim.round_trip else f" if the round trip is below {format_duration(NEAR_BY_S)}"
        words = f"the target, which takes {rest.mid:.0%} of an I/O's time ({what}){near}"
        if f.is_sync:
            words = f"the target's disk, for which each write waits ({what}){near}"
        sure = MEDIUM if f.claim.round_trip and found.is_below("core", NEARLY) else LOW
        return _limited(f, Limit.DEVICE if f.is_sync else Limit.TARGET, sure, words)
    if depth == 1:
        return _limited(f, Limit.LATENCY, MEDIUM, words)
    if rest.high < NEAR:
        return None
    may = f"the target may take up to {max(0.0, rest.high):.0%} of an I/O's time ({what})"
    return _not_enough(f"{may}, and the round trip the rest", "round trip", "parallel")


def _by_link(f: Described, found: Shares) -> _Said | None:
    """What a figure far below the link's rate suggests, where nothing else was reported; and what a path
    within one machine does."""
    link, share = f.claim.link, found.share("link").mid
    trip = f.claim.round_trip or exact(0.0)
    if link and link.is_memory and not f.is_storage:
        work = f"the processors' work{f' for {f.protection}' if f.is_protected else ''}"
        return _limited(f, Limit.CPU, MEDIUM, f"{work}: nothing else is on the path")
    if f.rate and trip.mid > NEAR_BY_S and not (f.is_protected or f.is_storage) and 0 < share < COSTS:
        flying = format_size(f.rate.mid * trip.mid)
        words = f"one stream's window, or losses ({flying} in each {format_duration(trip.mid)})"
        return _limited(f, Limit.WINDOW, LOW, words)
    is_filled = link is not None and 0 < (link.rate_bit_s or 0.0) <= FILLED_BIT_S and trip.mid <= NEAR_BY_S
    is_work = f.is_protected and not f.is_offloaded and not f.is_storage and not _is_idle(f)
    words = f"the processors' work for {f.protection}, if the clear figure fills the link"
    return _limited(f, Limit.CPU, LOW, words) if is_filled and is_work and TOO_DEAR <= share < COSTS else None


def _nothing_full(f: Described, found: Shares) -> _Said:
    if f.figure is None:
        return _not_enough("no figure was reported")
    if found.share("disk").low > MORE:
        caches = f"the target's memory{'' if 'direct' in f.about else ', or the page cache of this side,'}"
        times = f"{found.share('disk').mid:.2f} times what the disk gives by itself"
        return _not_enough(f"{times}: {caches} answered, or the figures are of different disks", "cache")
    parts = [f"{rate_text(f.rate.mid)} of data" if f.rate else f"{f.figure.unit} of unknown size"]
    parts += [f"{name} {_percent(use.share)}" for name, (_, use) in found.used.items()]
    if f.is_polling and (f.claim.busiest_core or f.claim.processor):
        parts.append("a core that polls is always busy")
    full = f"{' or '.join(found.open)} may be full" if found.open else "nothing that was reported is full"
    return _not_enough(f"{', '.join(parts)}: {full}", *(["load"] if "core" in found.open else []))


def _percent(share: Interval) -> str:
    low, high = f"{share.low:.0%}", f"{min(10.0, share.high):.0%}"
    return f"{share.mid:.0%}" if share.high - share.low < 0.1 else f"{low} to {high}"


def _jumbo(f: Described) -> _Said | None:
    """More than frames of 1500 bytes carry, of a link whose MTU was not reported."""
    most = None if f.mtu else f.carried
    if f.rate is None or most is None or f.rate.low <= most.high * CLOCK:
        return None
    protocol = "TCP" if f.is_tcp else "UDP"
    more = f"{bytes_text(f.rate.mid)} is more than the {bytes_text(most.high)} that {protocol} carries"
    wrong = f"these are jumbo frames,{' a cache answered,' if f.is_storage else ''} or a figure is wrong"
    return _not_enough(f"{more} over {f.link} in frames of 1500 bytes: {wrong}", "link")


STEPS = (_alike, _by_resources, _by_cipher, _by_ratio, _by_more_at_once, _by_time, _by_link)
"""In this order: the first that has an answer."""


def _judged(f: Described) -> Judged:
    found = Shares({}, [], [], [])
    if words := next(contradictions(f), None):
        said = _Said(AnswerKind.IMPOSSIBLE, Limit.UNKNOWN, HIGH, words)
    elif (jumbo := _jumbo(f)) is not None:
        said = jumbo
    else:
        found = look(f)
        steps = () if f.figure is None and not found.full and not found.nearly else STEPS
        said = next(filter(None, (step(f, found) for step in steps)), None) or _nothing_full(f, found)
    is_open = said.sure is not HIGH or said.answer is AnswerKind.MASKED
    return Judged(
        title=f.claim.title or f.claim.workload,
        answer=said.answer,
        limited_by=said.limit,
        confidence=said.sure,
        reason=said.words,
        shares={
            name: use.share.rising(lambda part: round(min(part, 1e18), 4))
            for name, (_, use) in found.used.items()
        },
        decides=_decides(f, said) if is_open else {},
        unused=f.claim.unused,
    )


def _decides(f: Described, said: _Said) -> dict[str, str]:
    """What would decide it: what the answer names, then what was not reported, the most useful first."""
    claim, storage = f.claim, f.is_storage
    lacks = {
        "load": claim.busiest_core is None or claim.target_busiest_core is None,
        "link": f.carried is None or f.mtu is None,
        "clear": f.is_protected and f.ratio is None,
        "local": storage and claim.local is None,
        "depth": storage and f.in_flight is None,
        "parallel": claim.in_parallel is None,
        "round trip": claim.round_trip is None,
        "cipher": f.is_protected and claim.cipher is None and not f.is_offloaded,
        "window": claim.window is None and not storage,
    }
    known = "link" if f.carried else ""
    names = [name for name in said.first if lacks.get(name, True)]
    names += (name for name, is_lacking in lacks.items() if is_lacking and name not in (*names, known))
    rw = f"--rw={'rand' if f.is_random else ''}read --bs={f.block or 4096}"
    most = 4 if said.answer is AnswerKind.NOT_ENOUGH else 2
    return {
        what.replace("PROTECTION", f.protection): ((of_disks or links) if storage else links).replace(
            "RW", rw
        )
        for what, links, of_disks in (DECIDES[name] for name in names[:most])
    }


_FIO = "fio --name=x --filename=DISK --readonly --direct=1 RW"
DECIDES = {
    "load": ("each core's load at both ends meanwhile", "mpstat -P ALL 1", ""),
    "link": ("the link's rate and MTU", "ethtool DEV; ip link show DEV", ""),
    "clear": ("the same without PROTECTION", "iperf3 -c HOST", "harness run --protect off,..."),
    "local": ("the disk by itself, on the target", _FIO, ""),
    "cache": ("more than all memory, past the caches", f"{_FIO} --size=TWICE_THE_MEMORY", ""),
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
    """Each figure with its answer, what was not understood, and what would decide it."""
    said = []
    for each in found:
        said.append(f"{each.title}: {each.sentence}" if each.title else each.sentence)
        said += [f"  not used: {'; '.join(each.unused)}"] if each.unused else []
        said += [f"  to find out, measure {what}: {command}" for what, command in each.decides.items()]
    return said
