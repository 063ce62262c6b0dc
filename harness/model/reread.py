"""What reads reveal about an unknown volume: whether its disk answers them or the target's memory."""

from __future__ import annotations

import enum

import msgspec

from harness.model.ranges import Amount, Count
from harness.model.units import format_ns, format_size


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """What ``storage/programs/reread.py`` gathers on the initiator.

    Times of single commands, in the order in which they were taken: ``first_ns`` and ``again_ns`` of the
    first and the second read of a block of ``block_bytes`` that is not zeros, ``longer_ns`` of later ones of
    ``longer_bytes``, and ``none_ns`` of a command that needs no disk, with ``none_bytes`` of an answer; empty
    where the transport has none. ``blocks`` were looked at among those that will be measured: ``zeros`` are
    zeros, ``copies`` are like another one, and ``reported`` are those of which the volume says whether they
    are ``deallocated``; the others can be compressed to the part ``compressed_to``. ``provisioning`` is the
    type that SCSI's VPD page B2h has (0: not reported, 1: resource, 2: thin).
    """

    block_bytes: Count
    first_ns: tuple[Count, ...] = ()
    again_ns: tuple[Count, ...] = ()
    longer_ns: tuple[Count, ...] = ()
    longer_bytes: Count = 0
    none_ns: tuple[Count, ...] = ()
    none_bytes: Count = 0
    blocks: Count = 0
    zeros: Count = 0
    copies: Count = 0
    reported: Count = 0
    deallocated: Count = 0
    compressed_to: Amount | None = None
    provisioning: Count | None = None


class Sign(enum.StrEnum):
    """A sign that a target's memory answers reads, or that its disk reads less than it sends."""

    ZEROS = "zeros"
    COPIES = "copies"
    COMPRESSIBLE = "compressible"
    AGAIN = "faster again"


class Suspicion(enum.StrEnum):
    """Whether reads are suspected to come from the target's memory."""

    SUSPECTED = "suspected"
    NOT_SUSPECTED = "not suspected"
    CANNOT_TELL = "cannot tell"


class Reread(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one volume, by the rule of ``analysis/reread.py``.

    ``zeros``, ``copies`` and ``deallocated`` are fractions of the sampled blocks, None where unknown.
    ``first_ns``, ``again_ns`` and ``none_ns`` are medians of ``Samples``. ``saved_ns`` is how much faster a
    second read is, ``saved_low_ns`` and ``saved_high_ns`` are its 95 % confidence bounds (below 0: slower),
    and ``p`` is the p-value. ``medium_ns`` is the minimum time of second reads minus that of a command
    without a disk. ``region_bytes`` is what cells read.
    """

    verdict: Suspicion
    signs: tuple[Sign, ...] = ()
    region_bytes: Count = 0
    zeros: Amount | None = None
    copies: Amount | None = None
    deallocated: Amount | None = None
    compressed_to: Amount | None = None
    is_thin: bool | None = None
    first_ns: Amount | None = None
    again_ns: Amount | None = None
    none_ns: Amount | None = None
    saved_ns: float | None = None
    saved_low_ns: float | None = None
    saved_high_ns: float | None = None
    p: Amount | None = None
    medium_ns: float | None = None

    @property
    def is_from_memory(self) -> bool:
        """Whether figures of reads must not be called a disk's."""
        return self.verdict is not Suspicion.NOT_SUSPECTED

    @property
    def words(self) -> str:
        """One sentence for people, without its full stop."""
        first, again = (format_ns(ns) if ns is not None else "" for ns in (self.first_ns, self.again_ns))
        if self.verdict is Suspicion.SUSPECTED:
            is_memory = not {Sign.AGAIN, Sign.ZEROS}.isdisjoint(self.signs)
            memory = "these reads come from the target's memory, at least in part"
            less = "the target's disk may read less than these reads carry"
            return f"{memory if is_memory else less}: {'; '.join(map(self._sign_in_words, self.signs))}"
        if self.verdict is Suspicion.NOT_SUSPECTED:
            return f"the target's disk answers reads: a second one takes as long as the first, {again}"
        return (
            "it is not clear whether the target's disk answers reads or its memory"
            + (f": a second one takes {again}, a first one {first}" if self.again_ns is not None else "")
            + (
                f", and a command without a disk {format_ns(self.none_ns)}"
                if self.none_ns is not None
                else ""
            )
        )

    def _sign_in_words(self, sign: Sign) -> str:
        if sign is Sign.ZEROS:
            empty = max(self.zeros or 0.0, self.deallocated or 0.0)
            where = " of a thin LUN" if self.is_thin else ""
            never = f"of the blocks{where} are zeros or were never written, so no disk is read for them"
            return f"{empty:.0%} {never}"
        if sign is Sign.COPIES:
            return f"{self.copies or 0.0:.0%} of the blocks are copies of others, which it may store once"
        if sign is Sign.COMPRESSIBLE:
            return f"the data shrink to {self.compressed_to or 0.0:.0%} where they are compressed"
        first, again = (format_ns(ns or 0.0) for ns in (self.first_ns, self.again_ns))
        return (
            f"a second read takes {again} and a first one {first}, and cells read the same "
            f"{format_size(self.region_bytes)} again and again"
        )
