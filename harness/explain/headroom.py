"""Up to which load a link or a disk hides what a protection costs, and from which on that shows.

A core that encrypts while the link sends the packet before costs nothing, until the core is full. So a small
cost over a slow link says nothing of a greater load. A core is full at a block for each time that it works
for an I/O; how much that work changes with the load is known from forecasts that were tried (``WORK``).
"""

from __future__ import annotations

import math

import msgspec

from harness.analysis.interval import Interval
from harness.analysis.limit import ChangeKind, Limit
from harness.analysis.stats import MARGIN
from harness.explain.evidence import Evidence
from harness.explain.limits import RULES
from harness.explain.remedy import WORK
from harness.results import sections

QUEUED = 0.7
"""To queue I/Os takes fio two system calls for each, and one without a queue. Of memory that is the most, so
it takes this part longer."""


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """A protection whose cost the cell's limit hides.

    ``load_mb_s`` is the load at which a core would be full, and ``cipher_mb_s`` the one at which cipher and
    check alone would fill it, both in 10^6 bytes per second of such I/Os; None if the core was not monitored
    or the cipher not measured.
    """

    load_mb_s: Interval | None = None
    cipher_mb_s: float | None = None


def of(evidence: Evidence, limit: Limit) -> Headroom | None:
    """None if nothing hides the cost: something else limits, or more is lost than framing takes."""
    time_ns, plain, block_bytes = evidence.time_ns, evidence.plain, evidence.block_bytes
    is_hidden = limit is Limit.DEVICE or (RULES[limit].is_of_link and limit is not Limit.FRAMING)
    if not is_hidden or evidence.is_virtual or time_ns is None or plain is None or block_bytes is None:
        return None
    framing_ns = evidence.path.framing_ns if evidence.path is not None else 0.0
    if (time_ns.mid - framing_ns) * (1 - MARGIN) > plain.time_ns.mid:
        return None
    made = Headroom()
    if evidence.cipher_ns is not None and evidence.cipher_ns.low:
        made = Headroom(cipher_mb_s=block_bytes / evidence.cipher_ns.low * 1e3)
    work = evidence.least_work_ns
    if work is None or not work.low:
        return made
    is_alone = evidence.depth == 1
    least, most = zip(*(WORK[kind, is_alone] for kind in (ChangeKind.DEPTH, ChangeKind.RATE)), strict=True)
    # Whoever queues I/Os to memory works longer for each.
    queued_ns = (
        QUEUED * evidence.device_ns.mid if is_alone and evidence.is_memory and evidence.device_ns else 0
    )
    factor = Interval(min(least), (min(least) + max(most)) / 2, max(most))
    busy_ns = work.rising(lambda ns: ns + queued_ns).by(factor)
    load = busy_ns.falling(lambda ns: block_bytes / min(ns, time_ns.mid) * 1e3)
    return msgspec.structs.replace(made, load_mb_s=load)


def room(found: Headroom) -> str:
    """At which load a core would be full: ``121-203 MB/s``; empty if that is not known."""
    if (load := found.load_mb_s) is None:
        return ""
    return f"{'-'.join(dict.fromkeys((_mb_s(load.low), _mb_s(load.high))))} MB/s"


def _mb_s(rate: float) -> str:
    return f"{rate:.3g}" if rate < 1000 else f"{rate:.0f}"


def remedy(evidence: Evidence, limit: Limit, found: Headroom) -> str:
    """What to type to find out; empty where the harness cannot make the load greater."""
    if limit in (Limit.ROUND_TRIP, Limit.TRANSPORT):
        return sections.over("depth", "1", "32")
    if limit is not Limit.LINK or not evidence.is_emulated:
        return ""
    if (load := found.load_mb_s) is None:
        least = (evidence.rate_bit_s or 1e9) / 8e6
        load = Interval(least, least, found.cipher_mb_s or 10 * least)
    # Powers of two of Gbit/s around it.
    powers = math.floor(0.25 + math.log2(8e-3 * load.low)), math.ceil(math.log2(8e-3 * load.high)) + 1
    first, last = (f"{2**power}G" if power >= 0 else f"{1000 * 2.0**power:.3g}M" for power in powers)
    return sections.over("rate", first, last)
