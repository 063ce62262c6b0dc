"""What limits a figure that somebody else measured, by what was reported of the machine.

Each resource has a share, an interval of how full it may be (``utilization``): by the figure itself (the
link: the data in full frames, with the protection's; a window: the data of a round trip; the disk: the same
without a network) or by its reported load. One that is full limits, if no other is. Where two may be, the
answer is what would decide it, with the command that measures it. More than a protocol, a disk or TCP gives
is impossible. Where something else than a processor is full, a protection was not loaded, and the figure says
nothing of it.

docs/buying.md says how to use it, docs/scores.md how often it was right.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from harness.analysis.interval import Interval, exact
from harness.analysis.limit import Limit
from harness.explain.verdict import NEAR, Confidence
from harness.model.units import format_duration, format_size
from harness.questions.figures.reported import PARTS, READ, Amount, Reported, amount, has
from harness.questions.figures.utilization import (
    CLOCK,
    COSTS,
    IPV6_MTU,
    MORE,
    MTU,
    NEAR_BY_S,
    NEARLY,
    Described,
    State,
    contradictions,
    is_protected,
    rate_text,
    with_words,
)

ALIKE, TOO_DEAR = 0.95, 0.1
"""With a protection this part of the clear figure is no difference; below the second one it is seldom a
cipher alone: losses, fragments or an offload at fault."""

MANY = 1.5
"""Several at once that reach so many times what one does do not share what is full."""

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


class PrintedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The answer on each figure of a file, in its order."""

    figures: tuple[Judged, ...]


class _Said(NamedTuple):
    """An answer's parts; ``first`` names in ``DECIDES`` what would decide it before all else."""

    answer: AnswerKind
    limit: Limit
    sure: Confidence
    words: str
    first: tuple[str, ...] = ()


def _limited(limit: Limit, sure: Confidence, words: str) -> _Said:
    return _Said(AnswerKind.LIMITED, limit, sure, words)


def _not_enough(words: str, *first: str) -> _Said:
    return _Said(AnswerKind.NOT_ENOUGH, Limit.UNKNOWN, NONE, words, first)


def _masked(f: Described, limit: Limit, sure: Confidence, words: str) -> _Said:
    said = f"{words}: {f.protection} was not under load, so its cost is unknown"
    return _Said(AnswerKind.MASKED, limit, sure, said, ("faster",))


def judge_all(figures: Sequence[Reported]) -> list[Judged]:
    """All figures of a file. A protected one is compared with a clear one that has all else alike."""
    every = [with_words(_compared(each, figures)) for each in figures]
    return [_judged(Described(_without_parts(each, every))) for each in every]


def _compared(claim: Reported, among: Sequence[Reported]) -> Reported:
    """With the clear figure that has all else alike; a tunnel's MTU is not another link's."""
    if not is_protected(claim) or claim.unprotected:
        return claim
    keys = ("link", "machine", "transport", "workload", "block", "depth", "jobs", "streams")
    alike = [each for each in among if all(getattr(claim, key) == getattr(each, key) for key in keys)]
    clear = [each for each in alike if each.protection and not is_protected(each)]
    below = [(each.mtu or MTU) - (claim.mtu or each.mtu or MTU) for each in clear]
    pairs = [each for each, less in zip(clear, below, strict=True) if 0 <= less <= MTU - IPV6_MTU]
    why = [f"the clear figure: it has an MTU of {each.mtu}" for each in clear[:1] if not pairs]
    known = pairs[0].throughput or pairs[0].iops if pairs else None
    return msgspec.structs.replace(claim, unprotected=known, unused=(*claim.unused, *why))


def _without_parts(claim: Reported, among: Sequence[Reported]) -> Reported:
    """Each figure that was reported as a part of another, by itself; unused where there is no other."""
    known: dict[str, Amount | None] = {each.title.lower(): each.throughput or each.iops for each in among}
    known |= {key: getattr(claim, key) for key in READ if READ[key] is amount}
    link = Described(claim).carried
    known["link"] = Amount(link) if link else None
    for key, each in known.items():
        if key not in READ or each is None or each.unit != PARTS:
            continue
        other = known.get(each.part_of) or known.get(each.part_of.lower())
        whole = Amount(each.value.by(other.value), other.unit) if other and other.unit != PARTS else None
        why = () if whole else (f"{key}: a part of {each.part_of}, of which there is no figure",)
        claim = msgspec.structs.replace(claim, unused=(*claim.unused, *why), **{key: whole})
    return claim


def _answers(f: Described) -> Iterator[_Said]:
    """All that the figure says, the surest first: the first is the answer."""
    for words in contradictions(f):
        yield _Said(AnswerKind.IMPOSSIBLE, Limit.UNKNOWN, HIGH, words)
    if f.rate and not f.claim.mtu and f.share("link").low > CLOCK:
        more = f"{rate_text(f.rate.mid)} is more than {f.link} carries in frames of {MTU} bytes"
        cache = " a cache answered," if f.is_storage else ""
        yield _not_enough(f"{more}: these are jumbo frames,{cache} or a figure is wrong", "link")
    yield from _by_what_is_full(f)
    yield from _by_protection(f)
    yield from _by_more_at_once(f)
    yield from _by_time(f)
    yield from _by_link(f)
    if f.share("disk").low > MORE:
        caches = f"the target's memory{'' if 'direct' in f.about else ', or the page cache of this side,'}"
        times = f"{f.share('disk').mid:.2f} times what the disk gives by itself"
        yield _not_enough(f"{times}: {caches} answered, or the figures are of different disks", "cache")
    parts = [f"{rate_text(f.rate.mid)} of data" if f.rate else "I/Os or packets of unknown size"]
    parts += [f"{name} {_percent(use.share)}" for name, use in f.used.items()]
    parts += ["a core that polls is always busy"] if f.is_polling and any(f.ends[0]) else []
    may_be = f.among(State.OPEN)
    full = f"{' or '.join(may_be)} may be full" if may_be else "nothing that was reported is full"
    yield _not_enough(f"{', '.join(parts)}: {full}", *(["busiest_core"] if "core" in may_be else []))


def _by_what_is_full(f: Described) -> Iterator[_Said]:
    """What is full, or nearly, if that is one alone; with a protection it is as fast as in clear only if
    something else limits both."""
    limits, free = {use.limit for use in f.limiting}, f.among(State.FREE)
    is_work = not limits or bool(limits & WORK)
    bare = f.carries(is_clear=True)
    framed = f.carried.mid / bare.mid if f.carried and bare else 1.0
    if f.ratio and f.ratio >= ALIKE * min(1.0, framed) and (is_work or len(limits) > 1):
        words = f"with it, it is {f.ratio:.2f} of the clear figure, so something else limits both"
        full = ", ".join(f"{name} {use.share.mid:.0%}" for name, use in f.used.items() if use in f.limiting)
        limit = Limit.CPU if limits and limits <= WORK else Limit.UNKNOWN
        yield _masked(f, limit, MEDIUM, words + (f" ({full})" if full else ""))
    if len(limits) > 1:
        both = " and ".join(use.words for use in f.limiting)
        yield _not_enough(f"each of these may limit: {both}", "busiest_core", "in_parallel")
    if limits and (is_work or not f.is_in_turn):
        use, doubts = f.limiting[0], f.among(State.OPEN) + f.among(State.NEARLY)
        sure = HIGH if not doubts and {*use.others} <= {*free} else MEDIUM
        is_masked = f.is_protected and use.limit not in WORK
        yield _masked(f, use.limit, sure, use.words) if is_masked else _limited(use.limit, sure, use.words)
    if f.figure is None:
        yield _not_enough("no figure was reported")


def _by_protection(f: Described) -> Iterator[_Said]:
    """What its cipher, and the clear figure, say of a protected one where nothing is known to be full."""
    link, ratio = f.share("link").mid, f.ratio or 0.0
    if f.cipher and NEAR <= f.cipher.mid <= MORE and ratio < COSTS:
        words = f"one core's cipher ({f.cipher.mid:.0%} of its stand-alone rate)"
        yield _limited(Limit.CRYPTO, MEDIUM, words)
    if f.ratio is None:
        return
    if not f.is_in_turn and (ratio < TOO_DEAR or f.is_idle):
        why = "more than most ciphers: losses, fragments or an offload may be at fault"
        if ratio >= TOO_DEAR and f.load:
            why = f"and no core that was reported is more than {f.load.high:.0%} busy"
        words = f"{f.protection} takes {1 - ratio:.0%}, {why}"
        yield _not_enough(words, "busiest_core", "losses", "offloads")
    if ratio < COSTS:
        how = "the link is not full" if link else "nothing else is known to be full"
        how = "each request waits for that" if f.is_in_turn else how
        words = f"the processors' work for {f.protection} ({ratio:.2f} of the clear figure; {how})"
        yield _limited(Limit.CPU, MEDIUM if 0 < link < COSTS else LOW, words)


def _by_more_at_once(f: Described) -> Iterator[_Said]:
    """What several at once say of one."""
    if (times := f.times(f.claim.in_parallel)) is None:
        return
    part, link = times.mid, f.share("link").mid
    grows = f"several at once reach {1 / part:.1f} times as much, so nothing they share is full"
    if part >= 1 / MORE and f.is_protected and 0 < link < NEARLY and not f.is_idle:
        words = "one core's work for one tunnel (more streams are no faster, the link is not full)"
        yield _limited(Limit.CPU, LOW if f.load is None else MEDIUM, words)
    if part > 1 / MANY:
        return
    if f.is_storage:
        yield _limited(Limit.LATENCY, MEDIUM, f"how few requests are in flight ({grows})")
    if f.is_far:
        yield _limited(Limit.WINDOW, LOW, f"one stream's window, or losses ({grows})")
    if not f.is_idle:
        words = f"one core's work for one {'tunnel' if f.is_protected else 'stream'} ({grows})"
        yield _limited(Limit.CPU, MEDIUM if f.is_protected else LOW, words)


def _by_time(f: Described) -> Iterator[_Said]:
    """The parts of an I/O's time: what the path does not take is the target's (Little's law)."""
    each, trip, link = f.each_s, f.claim.round_trip, f.carried or exact(SLOWEST_BIT_S / 8)
    if not (each and math.isfinite(each.high) and f.rate and f.claim.block) or f.share("link").mid >= NEAR:
        return
    depth = f.in_flight or max(1.0, each.mid * f.rate.mid / f.claim.block)
    what = f"{format_duration(each.mid)} each, {depth:.0f} at a time"
    for use in f.used.values() if depth == 1 else ():
        if use.limit not in WORK and use.share.mid >= 0.5:
            yield _limited(use.limit, MEDIUM, f"{use.words}; one request at a time")
    # Requests wait for those before them on the link: for none, for half, or for all of them.
    part = min(1.0, f.rate.mid / link.mid)
    waits = Interval(part / depth, part * (1 + 1 / depth) / 2, part)
    path = waits.plus((trip or Interval(0.0, NEAR_BY_S / 2, NEAR_BY_S)).times(1 / each.mid))
    rest = path.falling(lambda part: 1 - part)
    if rest.mid >= NEAR and rest.low >= 0.5 and not f.is_protected:
        limit, words = Limit.TARGET, f"the target, which takes {rest.mid:.0%} of an I/O's time ({what})"
        if has(r"d?sync\b|flush", f.words):
            limit, words = Limit.DEVICE, f"the target's disk, for which each write waits ({what})"
        words += "" if trip else f" if the round trip is below {format_duration(NEAR_BY_S)}"
        yield _limited(limit, MEDIUM if trip and "core" in f.among(State.FREE) else LOW, words)
    if depth == 1:
        yield _limited(Limit.LATENCY, MEDIUM, f"one request at a time ({format_duration(each.mid)} each)")
    if rest.high >= NEAR:
        may = f"the target may take up to {max(0.0, rest.high):.0%} of an I/O's time ({what})"
        yield _not_enough(f"{may}, and the round trip the rest", "round_trip", "in_parallel")


def _by_link(f: Described) -> Iterator[_Said]:
    """What a figure far below the link's rate suggests, where nothing else was reported; and what a path
    within one machine does."""
    link, share, trip = f.claim.link, f.share("link").mid, f.claim.round_trip
    if f.is_storage or not link:
        return
    work = f"the processors' work{f' for {f.protection}' if f.is_protected else ''}"
    if link.is_memory:
        yield _limited(Limit.CPU, MEDIUM, f"{work}: nothing else is on the path")
    if f.rate and trip and f.is_far and not f.is_protected and 0 < share < COSTS:
        flying = f"{format_size(f.rate.mid * trip.mid)} in each {format_duration(trip.mid)}"
        yield _limited(Limit.WINDOW, LOW, f"one stream's window, or losses ({flying})")
    is_filled = 0 < (link.rate_bit_s or 0.0) <= FILLED_BIT_S and not f.is_far
    is_work = f.is_protected and not f.is_offloaded and not f.is_idle
    if is_filled and is_work and TOO_DEAR <= share < COSTS:
        yield _limited(Limit.CPU, LOW, f"{work}, if the clear figure fills the link")


def _percent(share: Interval) -> str:
    low, high = f"{share.low:.0%}", f"{min(10.0, share.high):.0%}"
    return f"{share.mid:.0%}" if share.high - share.low < 0.1 else f"{low} to {high}"


def _judged(f: Described) -> Judged:
    said = next(_answers(f))
    used = {} if said.answer is AnswerKind.IMPOSSIBLE else f.used
    return Judged(
        title=f.claim.title or f.claim.workload,
        answer=said.answer,
        limited_by=said.limit,
        confidence=said.sure,
        reason=said.words,
        shares={name: use.share.rising(lambda part: round(min(part, 1e18), 4)) for name, use in used.items()},
        decides=_decides(f, said) if said.sure is not HIGH or said.answer is AnswerKind.MASKED else {},
        unused=f.claim.unused,
    )


def _decides(f: Described, said: _Said) -> dict[str, str]:
    """What would decide it: what the answer names, then what was not reported, the most useful first."""
    claim = f.claim
    known = {key for key in DECIDES if getattr(claim, key, None) is not None} - {"link"}
    known |= {"depth"} if f.in_flight else set()
    known -= {"busiest_core"} if claim.target_busiest_core is None else set()
    names = [name for name in said.first if name not in known]
    known |= {"link"} if f.carried else set()
    names += [key for key in DECIDES if hasattr(claim, key) and key not in known]
    rw = f"--rw={'rand' if 'rand' in f.words else ''}read --bs={claim.block or 4096}"
    found = {}
    for words, network, *storage in (DECIDES[name] for name in names):
        command = storage[0] if storage and f.is_storage else network
        if command and (f.is_protected or "PROTECTION" not in words):
            found[words.replace("PROTECTION", f.protection)] = command.replace("RW", rw)
    return dict(list(found.items())[: 4 if said.answer is AnswerKind.NOT_ENOUGH else 2])


_FIO = "fio --name=x --filename=DISK --readonly --direct=1 RW"
DECIDES: dict[str, tuple[str, ...]] = {
    "busiest_core": ("each core's load at both ends meanwhile", "mpstat -P ALL 1"),
    "link": ("the link's rate and MTU", "ethtool DEV; ip link show DEV"),
    "unprotected": ("the same without PROTECTION", "iperf3 -c HOST", "harness run --protect off,..."),
    "local": ("the disk by itself, on the target", "", _FIO),
    "cache": ("more than all memory, past the caches", "", f"{_FIO} --size=TWICE_THE_MEMORY"),
    "depth": ("how many requests are in flight", "", "iostat -x 1"),
    "in_parallel": ("more at once", "iperf3 -c HOST -P 8", f"{_FIO} --ioengine=libaio --iodepth=32"),
    "round_trip": ("the round trip, pinged in quick succession", "ping -i 0.002 -c 1000 HOST"),
    "cipher": ("the cipher of PROTECTION alone, on one core", "openssl speed -evp aes-128-gcm -bytes 1420"),
    "window": ("the window, and what is in flight", "ss -ti", ""),
    "losses": ("retransmissions and fragments", "nstat -az TcpRetransSegs IpFragCreates IpReasmFails"),
    "offloads": ("the same without segmentation offloads", "ethtool -K DEV gro off gso off tso off"),
    "faster": ("PROTECTION where nothing else is full", "harness run --link wired:unshaped --protect ..."),
}
"""By what was not reported: what would decide it, and the command that measures it, of a network and, if that
is another one, of storage ("" for none)."""


def lines(found: Sequence[Judged]) -> list[str]:
    """Each figure with its answer, what was not understood, and what would decide it."""
    said = []
    for each in found:
        said.append(f"{each.title}: {each.sentence}" if each.title else each.sentence)
        said += [f"  not used: {'; '.join(each.unused)}"] if each.unused else []
        said += [f"  to find out, measure {what}: {command}" for what, command in each.decides.items()]
    return said
