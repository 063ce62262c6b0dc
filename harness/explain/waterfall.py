"""Where the time of one I/O goes: named parts that add up to it to the last ns.

At depth 1 an I/O pays for everything in sequence, so the parts are those of its time. At greater depth, one
I/O is in flight for depth times the time between two completions (Little's law, L = X W). The parts are then
those of that longer time, each service once, and the remainder is waiting.

Everything is computed from plain figures (``Sample``): once from the best guesses, and once for each draw
from between the bounds. So where two parts depend on the same measurement, its uncertainty is not counted
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import msgspec

from harness.analysis.interval import Interval, exact
from harness.analysis.path_demands import Demands
from harness.explain.evidence import Baselines, Evidence
from harness.explain.limits import RULES

MODEL = 0.02
"""How far the closed form is trusted: virtual time agrees with it within 0.75 % (docs/theory.md)."""

OF_PATH = ("link", "round_trip", "window", "transport", "framing")
OF_RULES = {rule.part: rule.takes for rule in RULES.values() if rule.takes is not None}
PARTS = (*dict.fromkeys(rule.part for rule in RULES.values() if rule.part), "queue", "rest")

At = Callable[[Interval], float]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One possible reading of the evidence on a cell, in ns per I/O. None means unknown.

    ``device_alone_ns`` is the device's time for a single I/O. ``above_plain_ns`` is the cell's processor time
    beyond the same link unprotected, and ``crypto_ns`` the part of it for cipher and check. ``cipher_ns``
    is how long these keep a core busy, whether or not anything waits for it. ``core_ns`` is how long the
    busiest core works for one I/O, and ``work_ns`` the same as far as it is known better from another link.
    ``taken_ns`` is what rules say that their parts take (``Rule.takes``). ``faster`` is the path at twice the
    rate. ``evidence`` is what it is read from.
    """

    evidence: Evidence
    depth: int
    time_ns: float
    device_ns: float | None
    device_alone_ns: float | None
    path: Demands | None
    above_plain_ns: float | None
    crypto_ns: float | None
    cipher_ns: float | None
    core_ns: float | None
    work_ns: float | None
    taken_ns: Mapping[str, float] = {}
    faster: Demands | None = None

    @property
    def is_alone(self) -> bool:
        """An I/O pays for everything in sequence: one is in flight, and no resource is full with it."""
        return self.depth == 1 and not self.evidence.is_full_alone

    @property
    def whole_ns(self) -> float:
        """How long one I/O is in flight."""
        return self.time_ns * self.depth


def best_guess(evidence: Evidence) -> Sample | None:
    """The middle of all bounds; None if the cell has no time, or if its depth is unknown."""
    return _reading(evidence, lambda found: found.mid, model=1.0, split=0.5, waited=0.0)


def draw(evidence: Evidence, random: Random) -> Sample | None:
    """A reading with every figure anywhere between its bounds (propagation of distributions, JCGM
    101:2008)."""
    return _reading(
        evidence,
        lambda found: random.uniform(found.low, found.high),
        model=random.uniform(1 - MODEL, 1 + MODEL),
        split=random.random(),
        waited=random.random(),
    )


def _reading(evidence: Evidence, at: At, *, model: float, split: float, waited: float) -> Sample | None:
    if evidence.time_ns is None or evidence.depth is None:
        return None
    time_ns, depth = at(evidence.time_ns), evidence.depth
    busy = at(evidence.busy) if evidence.busy is not None else None
    device = at(evidence.device_ns) if evidence.device_ns is not None else None
    path = evidence.path.scaled(model) if evidence.path is not None else None
    alone = at(evidence.device_alone_ns) if evidence.device_alone_ns is not None else None
    if depth == 1:
        alone = device
    elif alone is None and device is not None:
        # From its share up to the time that one I/O was in flight in the column local (Little's law again),
        # and no longer than the path leaves of the time that one is in flight here.
        left = time_ns * depth - (path.alone_ns if path is not None else 0.0)
        alone = min(device * (1 + waited * (depth - 1)), max(device, left))
    cipher = at(evidence.cipher_ns) if evidence.cipher_ns is not None else None
    above = secret = None
    if evidence.column.protection and evidence.plain is not None and not evidence.is_virtual:
        above = max(0.0, _step(evidence, evidence.plain, time_ns, busy, at))
        least, most = _crypto(evidence, evidence.plain, time_ns, busy, cipher, at)
        least = min(max(0.0, least), above)
        secret = least + split * (min(max(least, most), above) - least)
    return Sample(
        evidence=evidence,
        depth=depth,
        time_ns=time_ns,
        device_ns=device,
        device_alone_ns=alone,
        path=path,
        above_plain_ns=above,
        crypto_ns=secret,
        cipher_ns=cipher,
        core_ns=time_ns * busy if busy is not None else None,
        work_ns=at(evidence.work_ns) if evidence.work_ns is not None else None,
        # From the last on: earlier versions drew the emulation's first.
        taken_ns={name: at(ns) for name, takes in reversed(OF_RULES.items()) if (ns := takes(evidence))},
        faster=evidence.faster.scaled(model) if evidence.faster is not None else None,
    )


def _crypto(
    evidence: Evidence, plain: Baselines, time_ns: float, busy: float | None, cipher_ns: float | None, at: At
) -> tuple[float, float]:
    """The least and the most that cipher and check add to a cell.

    Lower bounds: what encryption adds to authentication alone, if a column has that; and the cipher's
    stand-alone time minus the idle time it could hide in, if that was measured. A core idles in the cell
    without IPsec, and while the link carries ESP's framing. Upper bound: the cipher's stand-alone time.
    """
    least = _step(evidence, evidence.null, time_ns, busy, at) if evidence.null is not None else 0.0
    if cipher_ns is None:
        return least, float("inf")
    if _is_by_core(evidence, plain, busy):
        return max(least, cipher_ns), cipher_ns
    framing_ns = evidence.path.framing_ns if evidence.path is not None else 0.0
    idle_ns = time_ns * (1 - busy) if busy is not None else 0.0
    idle_without_ns = at(plain.time_ns) * (1 - at(plain.busy) if plain.busy is not None else 1) + framing_ns
    return max(least, cipher_ns - max(0.0, idle_without_ns - idle_ns)), cipher_ns


def excess_ns(evidence: Evidence) -> float:
    """How far the least that ciphers can have added exceeds the most that IPsec added; 0 if it does not, or
    if one of the two is unknown. Above 0, one of the two was measured wrong.

    ESP's wire time is computed, so it is no surer than the closed form.
    """
    plain, cipher_ns = evidence.plain, evidence.cipher_ns
    if evidence.time_ns is None or plain is None or cipher_ns is None or not evidence.column.has_cipher:
        return 0.0
    busy = evidence.busy.high if evidence.busy is not None else None
    path = evidence.path
    shorter, longer = (
        msgspec.structs.replace(evidence, null=None, path=path.scaled(factor) if path is not None else None)
        for factor in (1 - MODEL, 1 + MODEL)
    )
    most = _step(shorter, plain, evidence.time_ns.high, busy, lambda found: found.low)
    idlest = msgspec.structs.replace(
        plain,
        time_ns=exact(plain.time_ns.high),
        busy=exact(plain.busy.low) if plain.busy is not None else None,
    )
    least, _ = _crypto(longer, idlest, evidence.time_ns.low, busy, cipher_ns.low, lambda found: found.mid)
    return max(0.0, least - most)


def _is_by_core(evidence: Evidence, below: Baselines, busy: float | None) -> bool:
    """Whether the core's busy time decides a step of the baselines: above depth 1, if both cells have it."""
    return evidence.depth != 1 and busy is not None and below.busy is not None


def _step(evidence: Evidence, below: Baselines, time_ns: float, busy: float | None, at: At) -> float:
    """The processor time of a cell beyond a lower baseline.

    Depth 1: extra time minus ESP's wire time. (While the link is busy with one packet, the core works on the
    next one, and nothing waits for that.) Deeper: the difference in core-busy time, if both cells have it.
    """
    if busy is not None and below.busy is not None and _is_by_core(evidence, below, busy):
        return time_ns * busy - at(below.time_ns) * at(below.busy)
    framing_ns = evidence.path.framing_ns if evidence.path is not None else 0.0
    return time_ns - at(below.time_ns) - (framing_ns - below.framing_ns)


def parts(sample: Sample) -> dict[str, float]:
    """The parts of ``sample.whole_ns``, in ns; unknown ones are left out.

    Those of ``OF_RULES`` are no more than the link, the device and crypto leave. ``cpu`` is the processors'
    part besides crypto: at depth 1, no more than the others leave. ``rest`` is what nothing explains. It is
    below zero if the others add up to more than was measured. What goes on at the same time is a part once
    (``overlapped``).
    """
    found = _served(sample)
    for name, ns in _meanwhile(sample, found).items():
        found[name] -= ns
    if sample.crypto_ns:
        found["crypto"] = sample.crypto_ns
    left = sample.whole_ns - sum(found.values())
    # Before the processors' part: a core that is woken to send what netem held back counts as busy.
    for name in OF_RULES:
        if (ns := sample.taken_ns.get(name, 0.0)) > 0:
            found[name] = min(ns, max(0.0, left))
            left -= found[name]
    work = _work_ns(sample)
    if work is not None:
        found["cpu"] = min(work, max(0.0, left)) if sample.depth == 1 else work
    found["rest"] = left - found.get("cpu", 0.0)
    return found


def _served(sample: Sample) -> dict[str, float]:
    """What device and path take, whatever goes on at the same time."""
    found = {} if sample.device_alone_ns is None else {"device": sample.device_alone_ns}
    for name in OF_PATH if sample.path is not None else ():
        if (value := getattr(sample.path, f"{name}_ns")) > 0:
            found[name] = value
    return found


def _work_ns(sample: Sample) -> float | None:
    """The processors' work besides crypto, whether or not anything waits for it."""
    # In a cell with IPsec, the time beyond its bytes is processor work in any case.
    work = sample.above_plain_ns if sample.core_ns is None else sample.core_ns
    if work is None:
        return None
    secret = sample.crypto_ns or 0.0
    if sample.core_ns is not None:
        # The part of the cipher's work that nothing waits for still keeps the core busy.
        secret = max(secret, sample.cipher_ns or 0.0)
    return max(0.0, work - secret)


def _meanwhile(sample: Sample, found: Mapping[str, float]) -> dict[str, float]:
    """What the device does while the path carries, or the path while the device works, whichever is shorter:
    a disk reads ahead and writes behind, if blocks lie in sequence, and a core copies to memory."""
    evidence = sample.evidence
    excess_ns = sum(found.values()) - sample.whole_ns
    is_in_turn = evidence.is_random and not evidence.is_memory
    if sample.depth != 1 or is_in_turn or excess_ns <= 0 or "device" not in found:
        return {}
    device_ns, path_ns = found["device"], sum(found.get(name, 0.0) for name in OF_PATH)
    if device_ns <= path_ns:
        return {"device": min(excess_ns, device_ns)}
    return {name: min(1.0, excess_ns / path_ns) * found[name] for name in OF_PATH if name in found}


def overlapped_ns(sample: Sample) -> dict[str, int]:
    """How much longer a part takes than it shows, in ns, because others go on meanwhile."""
    found = _meanwhile(sample, _served(sample))
    work = _work_ns(sample)
    if work is not None and sample.depth == 1:
        found["cpu"] = work - parts(sample)["cpu"]
    return {name: round(ns) for name, ns in found.items() if round(ns) > 0}


def in_ns(sample: Sample, *, saturated: bool = False) -> dict[str, int]:
    """The parts in whole ns; ``rest`` takes the rounding error, so that they add up to the whole.

    ``saturated``: a resource is known to be full, so the remainder is waiting for it, ``queue``.
    """
    found = parts(sample)
    named = {name: round(found[name]) for name in PARTS if name in found and name != "rest"}
    left = round(sample.whole_ns) - sum(named.values())
    return {**named, "queue": left, "rest": 0} if saturated else {**named, "rest": left}
