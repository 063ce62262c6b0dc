"""The core time that cipher and integrity check take for one I/O, from stand-alone measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from harness.explain import span
from harness.explain.path import Sealed
from harness.explain.span import Span
from harness.model import Status
from harness.model.probing import Cipher, CipherFigures, KernelCipher
from harness.results.probe_records import ProbeRecord

AMPLE = 1.25
"""ESP may take this many times AF_ALG's figure: for bare ACKs (6 % of a long read), for cold caches (at most
10 %, measured with caches emptied before each operation), and for data in several pieces."""


def work_ns(probes: Iterable[ProbeRecord], sealed: Sequence[Sealed]) -> Span | None:
    """The core time of cipher and check for one I/O; None if nothing was measured.

    At least the undisturbed work of the core that has most of it. At most the work of all cores one after
    another, times the stretch that was seen, times ``AMPLE``.
    """
    measured = [_kernels(probe) for probe in probes]
    found = [[_Work.of(kernel, sealed) for kernel in kernels] for kernels in measured if kernels]
    if not found or not sealed:
        return None
    least = span.of_samples([max(work.on_one_core_ns for work in works) for works in found])
    most = span.of_samples([sum(work.stretched_ns for work in works) for works in found])
    return Span(least.low, max(least.low, most.mid), AMPLE * most.high)


def reasons(probes: Iterable[ProbeRecord]) -> list[str]:
    """Why nothing was measured, each reason once."""
    made = [probe for probe in probes if isinstance(probe.probe, Cipher)]
    if any(probe.status is Status.OK for probe in made):
        return []
    return list(dict.fromkeys(probe.reason for probe in made if probe.reason))


def _kernels(probe: ProbeRecord) -> Sequence[KernelCipher]:
    figures = probe.figures
    return figures.kernels if probe.status is Status.OK and isinstance(figures, CipherFigures) else ()


class _Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one kernel has to do for one I/O.

    ``on_one_core_ns`` is the least that falls to one of its cores. With one core, that is all of it. With
    several it is the longest part, because a connection's packets are not encrypted on two cores at once.
    """

    on_one_core_ns: float
    stretched_ns: float

    @classmethod
    def of(cls, kernel: KernelCipher, sealed: Sequence[Sealed]) -> _Work:
        parts = [
            part.packets * operation.each_packet_ns + part.bytes * operation.each_byte_ns
            for end in kernel.ends
            for part in sealed
            for operation in [kernel.encrypt if part.by == end else kernel.decrypt]
        ]
        return cls(
            on_one_core_ns=sum(parts) if kernel.processors == 1 else max(parts),
            stretched_ns=sum(parts) * kernel.stretch,
        )
