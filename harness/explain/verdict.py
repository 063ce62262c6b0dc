"""What limits a cell, how sure that is, and what would help: operational analysis.

With N requests in flight, no resource completes more than one request per its own demand, and all together
complete no more than N per the time of a single request: T >= max(D_1, D_2, ..., sum(D) / N) for the time T
between completions (Denning and Buzen, Computing Surveys 10(3), 1978; Lazowska et al., Quantitative System
Performance, chapter 5). The tightest bound limits, if it comes near what was measured. If it is the last one,
the largest part of the time of a single request limits. At depth 1 that is always so.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import stations
from harness.analysis.interval import exact
from harness.analysis.limit import ChangeKind, ChangeStep, Limit
from harness.explain import limits, waterfall
from harness.explain.evidence import Evidence
from harness.explain.limits import RULES
from harness.explain.waterfall import Sample

if TYPE_CHECKING:
    from harness.explain.headroom import Headroom
    from harness.explain.remedy import Change

NEAR = 0.7
"""The part of the measured time that a bound must reach to explain it. Even a short queue keeps its
bottleneck this busy: with N requests at two resources that take equally long, for N / (N + 1) of the time."""

IMPOSSIBLE = 1.1
"""A bound, or the sum of all parts, that reaches this part of the measured time is wrong."""

MOST = 0.9
"""Of a target that was not watched, or a link of an unknown rate: what limits is sure if it takes at least so
much of the time."""

MOST_OF = 0.52
"""What takes more than this part of the time is its largest part, for all that the path's model may err."""

DRAWS = 200
SURE = 0.95
"""The part of the draws in which a verdict must hold to count."""


class Confidence(enum.StrEnum):
    """How sure a verdict is, the surest first.

    ``high``: it holds in at least 95 % of all draws from the evidence. ``medium``: the same, but its evidence
    has a single source: a profile's figure, a difference. ``low``: the same, but from single measurements.
    ``none``: there is no verdict.
    """

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """``share`` is the part of the time that the limit explains, ``holds`` the part of the draws that agree.

    Without a verdict, ``either`` has the two limits of which it is one, if that is known, each with the part
    of the time that it explains: from the 5th to the 95th percentile of all draws. ``doubt`` is what makes
    the evidence doubtful, ``unsure`` in a few words why the confidence is not high. ``waterfall_ns`` adds up
    to ``whole_ns``, the time that one I/O is in flight; ``overlapped_ns`` is how much longer a part takes
    than that, because others go on meanwhile. ``bounds_ns`` are each resource's lower bound of the
    time per I/O, at depths above 1. ``headroom``: the limit hides what the protection costs.
    """

    limited_by: Limit
    confidence: Confidence
    reason: str
    share: float | None = None
    holds: float | None = None
    detail: str = ""
    either: dict[Limit, tuple[float, float]] = {}
    doubt: str = ""
    unsure: str = ""
    whole_ns: int | None = None
    waterfall_ns: dict[str, int] = {}
    overlapped_ns: dict[str, int] = {}
    bounds_ns: dict[Limit, int] = {}
    change: Change | None = None
    headroom: Headroom | None = None

    @property
    def is_lab_limited(self) -> bool:
        """Whether the lab limits, not the emulated link: the figure says nothing about
        such a link or its protection."""
        return self.limited_by is Limit.LAB


def judge(evidence: Evidence) -> Verdict:
    """The verdict on a cell; ``unknown`` with the reason if evidence is missing or too uncertain."""
    if evidence.at_most_ns is not None:
        return _of_disturbed(evidence, evidence.at_most_ns)
    guess = waterfall.best_guess(evidence)
    if guess is None or evidence.direction is None or evidence.block_bytes is None:
        reason = "; ".join(evidence.missing) or "the cell has no figure"
        return Verdict(limited_by=Limit.UNKNOWN, confidence=Confidence.NONE, reason=reason)
    if (held := limits.holding(evidence)) is not None:
        return _held(evidence, guess, *held)
    bounds = _bounds(guess)
    limit, share = _limit(guess)
    # Where nothing is known but the time, all draws would say so.
    draws = [] if _is_bare(guess) else _draws(evidence)
    counts = Counter(_limit(sample)[0] for sample in draws)
    # The limits that the draws give, the most frequent first, each with its part of the draws.
    said = [(each, count / DRAWS) for each, count in counts.most_common()] or [(Limit.UNKNOWN, 1.0)]
    first, holds = said[0]
    named = limit if first is limit and holds >= SURE else Limit.UNKNOWN
    either = _either(said, draws) if named is Limit.UNKNOWN else {}
    tightest = _tightest(guess, bounds)
    if named is Limit.UNKNOWN:
        reason = _unexplained(evidence, guess, bounds, said, either)
    elif guess.is_alone:
        reason = f"{share:.0%} of the time of one I/O"
    elif tightest is Limit.LATENCY:
        reason = f"{guess.depth} I/Os in flight are too few to hide it"
    else:
        reason = f"busy for {share:.0%} of the time"
    confidence, unsure = _confidence(evidence, named, share)
    from harness.explain import headroom  # here and below, because tables have no verdicts

    return Verdict(
        limited_by=named,
        confidence=confidence,
        unsure=unsure,
        reason=reason,
        either=either,
        doubt=_doubt(evidence),
        share=share if named is not Limit.UNKNOWN else None,
        holds=holds,
        detail=RULES[named].detail(evidence),
        whole_ns=round(guess.whole_ns),
        waterfall_ns=waterfall.in_ns(guess, saturated=tightest not in (None, Limit.LATENCY)),
        overlapped_ns=waterfall.overlapped_ns(guess),
        bounds_ns={name: round(bound) for name, bound in bounds.items()},
        change=_change(evidence, guess, draws, named),
        headroom=headroom.of(evidence, named),
    )


def likely(evidence: Evidence) -> Limit:
    """The limit by the middle of the evidence, without the draws that say how sure it is."""
    guess = waterfall.best_guess(evidence)
    return Limit.UNKNOWN if guess is None else (limits.holding(evidence) or _limit(guess))[0]


def is_lab_limited(evidence: Evidence) -> bool:
    """Whether the verdict is that the lab limits; without the draws, where the best guess is another."""
    guess = waterfall.best_guess(evidence) if evidence.is_emulated else None
    return guess is not None and _limit(guess)[0] is Limit.LAB and judge(evidence).is_lab_limited


def _is_bare(sample: Sample) -> bool:
    known = (sample.device_ns, sample.path, sample.above_plain_ns, sample.core_ns)
    return all(part is None for part in known)


def _held(evidence: Evidence, guess: Sample, limit: Limit, why: str) -> Verdict:
    whole_ns = round(guess.whole_ns)
    confidence, unsure = _confidence(evidence, limit, 1.0)
    return Verdict(
        limited_by=limit,
        confidence=confidence,
        unsure=unsure,
        reason=why,
        share=1.0,
        holds=1.0,
        detail=RULES[limit].detail(evidence),
        whole_ns=whole_ns,
        waterfall_ns={RULES[limit].part: whole_ns, "rest": 0},
    )


def _of_disturbed(evidence: Evidence, at_most_ns: float) -> Verdict:
    """The limit that no other program changes: what of the link takes more than half of a time that can only
    be too long, or at depths above 1 keeps it busy."""
    found = msgspec.structs.replace(evidence, time_ns=exact(at_most_ns), is_disturbed=False, at_most_ns=None)
    guess = waterfall.best_guess(found)
    limit, share = _limit(guess) if guess is not None and guess.path is not None else (Limit.UNKNOWN, 0.0)
    if not RULES[limit].is_of_link or share < MOST_OF:
        return Verdict(
            limited_by=Limit.UNKNOWN, confidence=Confidence.NONE, reason="; ".join(evidence.missing)
        )
    return Verdict(
        limited_by=limit,
        confidence=Confidence.HIGH,
        reason=f"at least {share:.0%} of the time, though other programs slowed it",
        share=share,
        detail=RULES[limit].detail(evidence),
    )


def _draws(evidence: Evidence) -> list[Sample]:
    """Draws from the evidence. The generator has a fixed seed, so the verdict is the same every time."""
    random = Random(1)  # noqa: S311
    drawn = (waterfall.draw(evidence, random) for _ in range(DRAWS))
    return [sample for sample in drawn if sample is not None and sample.time_ns > 0]


def _either(said: Sequence[tuple[Limit, float]], draws: Sequence[Sample]) -> dict[Limit, tuple[float, float]]:
    """The two limits of which one holds in ``SURE`` of the draws; empty if there are no such two."""
    first = said[:2]
    if any(limit is Limit.UNKNOWN for limit, _ in first) or sum(part for _, part in first) < SURE:
        return {}
    # At depths above 1, the part of the time for which a limit's work keeps it busy.
    shares = [_by_limit(waterfall.parts(sample), sample) for sample in draws]
    found = {}
    for limit in sorted((limit for limit, _ in first), key=list(Limit).index):
        ordered = sorted(share[limit] / sample.time_ns for share, sample in zip(shares, draws, strict=True))
        outer = round((1 - SURE) * len(ordered))
        found[limit] = (ordered[outer], ordered[-1 - outer])
    return found


_NOTHING = dict.fromkeys(Limit, 0.0)
_OF_LINK = [limit for limit in Limit if RULES[limit].is_of_link]


def _by_limit(parts: Mapping[str, float], sample: Sample) -> dict[Limit, float]:
    """How much of an I/O's time is each limit's, in ns; 0 of those that have none."""
    added, owners = _NOTHING.copy(), limits.of_parts(sample.evidence)
    for name, part in parts.items():
        added[owners.get(name, Limit.UNKNOWN)] += part
    return added


def _limit(sample: Sample) -> tuple[Limit, float]:
    """The limit in one draw, and the part of the time that it explains."""
    parts = waterfall.parts(sample)
    if sample.is_alone:
        return _largest(parts, sample.whole_ns, sample)
    bounds = _bounds(sample)
    first = _tightest(sample, bounds)
    if first is None:
        return Limit.UNKNOWN, 0.0
    share = min(1.0, bounds[first] / sample.time_ns)
    if first is Limit.LATENCY:
        known = {name: part for name, part in parts.items() if name != "rest"}
        return _largest(known, sum(known.values()), sample)[0], share
    part = RULES[first].part
    if first is Limit.CPU and (secret := sample.crypto_ns or 0.0) > bounds[first] - secret:
        part = "crypto"
    return limits.of_parts(sample.evidence)[part], share


def _largest(parts: Mapping[str, float], whole_ns: float, sample: Sample) -> tuple[Limit, float]:
    """The limit with the largest sum of parts; the lab only if it takes longer than all of the link."""
    added = _by_limit(parts, sample)
    if added[Limit.UNKNOWN] < (1 - IMPOSSIBLE) * whole_ns:
        return Limit.UNKNOWN, 0.0
    if added[Limit.LAB] <= sum(added[limit] for limit in _OF_LINK):
        added.pop(Limit.LAB, None)
    limit = max(added, key=added.__getitem__)
    share = added[limit] / whole_ns
    return (Limit.UNKNOWN, 0.0) if _may_overlap(sample.evidence) and share < NEAR else (limit, share)


def _may_overlap(evidence: Evidence) -> bool:
    """Whether the target, which was not monitored, may read ahead or write behind while the path carries
    something else."""
    return evidence.is_one_end and not (evidence.is_random and evidence.direction == "read")


def _bounds(sample: Sample) -> dict[Limit, float]:
    """The least time per I/O that each resource allows, as far as known; none of one I/O alone."""
    if sample.is_alone:
        return {}
    core_ns = sample.core_ns
    if core_ns is None and (sample.above_plain_ns or 0.0) > sample.time_ns / 2:
        # What IPsec adds beyond its bytes is processor work. If that is most of the cell, they are full.
        core_ns = sample.time_ns
    cell = stations.CellDemands(
        path=sample.path, whole={"core": core_ns or 0.0}, device_ns=sample.device_ns or 0.0
    )
    bounds = {limit: ns for limit, ns in stations.bounds([cell]).items() if ns}
    if sample.depth > 1 and sample.path is not None and sample.device_alone_ns is not None:
        known = (part for name, part in waterfall.parts(sample).items() if name != "rest")
        bounds[Limit.LATENCY] = sum(known) / sample.depth
    return bounds


def _tightest(sample: Sample, bounds: Mapping[Limit, float]) -> Limit | None:
    """The bound that limits; None if none comes near what was measured, or one is above it."""
    if not bounds:
        return None
    first = max(bounds, key=bounds.__getitem__)
    return first if NEAR <= bounds[first] / sample.time_ns <= IMPOSSIBLE else None


def _unexplained(
    evidence: Evidence,
    guess: Sample,
    bounds: Mapping[Limit, float],
    said: Sequence[tuple[Limit, float]],
    either: Mapping[Limit, tuple[float, float]],
) -> str:
    """Why there is no verdict, and what would tell."""
    if said[0][0] is not Limit.UNKNOWN or said[0][1] < SURE:
        rivals = sorted((limit for limit, _ in said[:3]), key=list(Limit).index)
        names = " or ".join(RULES[limit].words(evidence) for limit in rivals)
        parts = f" ({in_words(either, evidence)})" if either else ""
        words = f"the evidence allows {names}{parts}"
    elif guess.is_alone:
        left = waterfall.parts(guess)["rest"] / guess.whole_ns
        if left < 1 - IMPOSSIBLE:
            words = f"the known parts add up to {1 - left:.0%} of what was measured, so some are wrong"
        elif _may_overlap(evidence) and left < NEAR:
            words = "no part takes most of the time, and the target may read ahead or write behind meanwhile"
        else:
            words = f"nothing known explains {left:.0%} of the time of one I/O"
    elif bounds:
        first = max(bounds, key=bounds.__getitem__)
        words = f"the tightest bound ({first}) explains {bounds[first] / guess.time_ns:.0%} of the time"
    else:
        words = "no bound is known"
    return "; ".join((words, *evidence.missing, *_lacking(evidence)))


def in_words(either: Mapping[Limit, tuple[float, float]], evidence: Evidence) -> str:
    """``crypto work 45-55 %, processor work outside crypto 40-48 %``."""
    return ", ".join(
        f"{RULES[limit].words(evidence)} {max(0, low * 100):.0f}-{max(0, high * 100):.0f} %"
        for limit, (low, high) in either.items()
    )


def _doubt(evidence: Evidence) -> str:
    if evidence.first_ns is not None and evidence.time_ns is not None:
        first, others = (f"{time_ns / 1000:.0f} us" for time_ns in (evidence.first_ns, evidence.time_ns.mid))
        return (
            f"a cache of the target's answered all repeats but the first (an I/O took {first}, then "
            f"{others}), so this does not measure its disk"
        )
    excess_ns = waterfall.excess_ns(evidence)
    if not excess_ns:
        return ""
    return (
        f"the stand-alone ciphers take {excess_ns / 1000:.0f} us more than all that IPsec adds, so one of "
        "the two was measured wrong"
    )


def _lacking(evidence: Evidence) -> list[str]:
    """What was not measured and would tell more."""
    if evidence.is_virtual or evidence.column.is_local:
        return []
    lacking = []
    if evidence.column.protection and evidence.plain is None:
        lacking.append("no column shows this link without IPsec")
    elif evidence.column.has_cipher and evidence.null is None and "cipher_null" not in evidence.driver:
        how = "" if evidence.cipher_ns is None else " more closely"
        lacking.append(f"no column with null-sha256 separates the cipher from the kernel's path{how}")
    if evidence.null is None and evidence.cipher_ns is not None and not limits.is_crypto_known(evidence):
        lacking.append("other programs slowed the stand-alone ciphers: measure again on a quiet machine")
    if evidence.is_one_end:
        lacking.append("log in to the target (--target) or read its counters to learn more")
    elif evidence.busy is None:
        lacking.append("the processor's busy time is unknown")
    if evidence.repeats < 2:
        lacking.append("it was measured only once")
    return lacking


def _confidence(evidence: Evidence, limit: Limit, share: float) -> tuple[Confidence, str]:
    """How sure a verdict is, and in a few words why it is not surer."""
    if limit is Limit.UNKNOWN:
        return Confidence.NONE, ""
    if evidence.is_virtual and not evidence.is_one_end:
        return Confidence.HIGH, ""
    if evidence.repeats < 2 and not evidence.is_virtual:
        return Confidence.LOW, "measured once"
    if evidence.first_ns is not None:
        return Confidence.LOW, "a cache answered all repeats but the first"
    if _doubt(evidence):
        return (
            Confidence.LOW,
            "the cipher alone was timed at more than this whole cost, so one of the two is wrong",
        )
    # What was not watched may hide in what else there is of the time.
    is_of_target = limit == evidence.limit_of_target
    is_half_known = evidence.is_one_end or bool(evidence.rate_unknown)
    if is_half_known and (not evidence.is_target_shown if is_of_target else share < MOST):
        what = "the target was not monitored" if evidence.is_one_end else "the link's rate is unknown"
        return Confidence.MEDIUM, what
    return (
        (Confidence.HIGH, "") if RULES[limit].is_sure(evidence) else (Confidence.MEDIUM, RULES[limit].unsure)
    )


def _change(evidence: Evidence, guess: Sample, draws: Sequence[Sample], limit: Limit) -> Change | None:
    """What would help, if it can be made and forecast: a processor twice as fast, or no headers, cannot be
    made; what a faster cipher gives was forecast as up to 1.4 times too little."""
    kind = RULES[limit].change(evidence)
    if kind is None:
        return None
    from harness.explain import remedy

    is_deeper = kind is ChangeKind.DEPTH
    step = remedy.deeper(guess) if is_deeper else ChangeStep(kind, 2 if kind is ChangeKind.RATE else 0.5)
    return None if step is None else _forecast(guess, draws, step)


def forecast(evidence: Evidence, step: ChangeStep) -> Change | None:
    """What a step would give of a cell, whatever limits it; None if that is unknown, or hardly worth it."""
    guess = waterfall.best_guess(evidence)
    return None if guess is None else _forecast(guess, _draws(evidence), step)


def _forecast(guess: Sample, draws: Sequence[Sample], step: ChangeStep) -> Change | None:
    from harness.explain import remedy

    random = Random(2)  # noqa: S311
    chances = (remedy.Chances(random.random(), random.random(), random.random()) for _ in draws)
    return remedy.forecast(guess, list(zip(draws, chances, strict=False))[::6], step)
