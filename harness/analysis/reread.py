"""Does a disk answer reads of an unknown volume, or memory? The rule, over samples of single commands.

- **Suspected**: a second read of a block is answered sooner than the first one, by more than chance and by
  more than ``SAVED_NS``. So are blocks for which no disk need be read: zeros, and those of which the volume
  says that nothing is stored; and data that a target may store as less: copies, and what can be compressed.
- **Not suspected**: a second read takes longer than a command that needs no disk, by more than
  ``MEDIUM_NS``, and the first one may have saved no more than half of that.
- **Cannot tell**, else. A cache that had everything before the first read answers as a fast disk does.

What a command takes on the way is not the disk's, and grows with its bytes: the longer reads tell how much.
The thresholds were set before any target was judged by them (docs/nas.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.analysis import ratios
from harness.analysis.stats import Summary, summarise
from harness.model.reread import Reread, Samples, Sign, Suspicion

ZEROS, COPIES, COMPRESSED_TO = 0.05, 0.10, 0.50
"""From these parts of the blocks on, and up to this part of their size, content is a sign."""

P = 0.001
"""The largest p of a difference between second and first reads that counts."""

SAVED_NS = 40_000
"""The least that a cache saves. A solid state disk saves less by itself: with the first read of a block it
may have to look up where that is stored."""

MEDIUM_NS = 75_000
"""From here on it is a disk that takes the time. Less may go into waking up the target's program."""

FEWEST = 20
"""Reads of a kind, below which times say nothing."""


def judge(samples: Samples, region_bytes: int) -> Reread:
    """The verdict on a volume of which cells read ``region_bytes``."""
    blocks = samples.blocks
    zeros, copies = (count / blocks if blocks else None for count in (samples.zeros, samples.copies))
    deallocated = samples.deallocated / samples.reported if samples.reported else None
    compressed_to = samples.compressed_to
    times = _times(samples)
    is_saved = times.get("p", 1.0) <= P and times["saved_low_ns"] > 0 and times["saved_ns"] >= SAVED_NS
    medium_ns = times.get("medium_ns", 0.0)
    is_medium = medium_ns >= MEDIUM_NS and times["saved_high_ns"] <= medium_ns / 2
    signs = (
        *((Sign.ZEROS,) if max(zeros or 0.0, deallocated or 0.0) >= ZEROS else ()),
        *((Sign.COPIES,) if (copies or 0.0) >= COPIES else ()),
        *((Sign.COMPRESSIBLE,) if compressed_to is not None and compressed_to <= COMPRESSED_TO else ()),
        *((Sign.AGAIN,) if is_saved else ()),
    )
    verdict = Suspicion.NOT_SUSPECTED if is_medium else Suspicion.CANNOT_TELL
    return Reread(
        verdict=Suspicion.SUSPECTED if signs else verdict,
        signs=signs,
        region_bytes=region_bytes,
        zeros=zeros,
        copies=copies,
        deallocated=deallocated,
        compressed_to=compressed_to,
        # 0: provisioned in full, or not reported.
        is_thin={1: False, 2: True}.get(samples.provisioning or 0),
        **times,
    )


def _times(samples: Samples) -> dict[str, float]:
    """The fields of ``Reread`` about times; those that are not known are left out."""
    first, again = _summary(samples.first_ns), _summary(samples.again_ns)
    if first is None or again is None:
        return {}
    found = ratios.ratio_of(*_above_zero(samples.first_ns, samples.again_ns))
    low, high = (found.ratio if end is None else end for end in (found.low, found.high))
    times = {
        "first_ns": first.median,
        "again_ns": again.median,
        "saved_ns": first.median * (1 - found.ratio),
        "saved_low_ns": first.median * (1 - high),
        "saved_high_ns": first.median * (1 - low),
        "p": found.p,
    }
    none, longer = _summary(samples.none_ns), _summary(samples.longer_ns)
    if none is None or longer is None:
        return times
    each_byte_ns = max(0.0, longer.high - again.low) / (samples.longer_bytes - samples.block_bytes)
    less_bytes_ns = each_byte_ns * (samples.block_bytes - samples.none_bytes)
    return {**times, "none_ns": none.median, "medium_ns": again.low - none.high - less_bytes_ns}


def _summary(values: Sequence[int]) -> Summary | None:
    return summarise(values) if len(values) >= FEWEST else None


def _above_zero(*series: Iterable[int]) -> list[list[float]]:
    """In virtual time memory may answer within one tick of the clock, which has no logarithm."""
    return [[max(1.0, value) for value in values] for values in series]
