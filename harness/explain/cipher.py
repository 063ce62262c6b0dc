"""What cipher and check take of a core for one I/O, by what they were measured to take by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from harness.explain import span
from harness.explain.path import Sealed
from harness.explain.span import Span
from harness.model import Status
from harness.model.probing import Cipher
from harness.results.probe_records import CipherFigures, KernelCipher, ProbeRecord

AMPLE = 1.25
"""What ESP may take beyond AF_ALG's figure: for bare ACKs (6 % of a long read), with empty caches (10 % at
most, where they were emptied before each operation), of data in several pieces."""


def work_ns(probes: Iterable[ProbeRecord], sealed: Sequence[Sealed]) -> Span | None:
    """What cipher and check take of cores for one I/O; None if nothing was measured.

    At least what the core that has most of it works undisturbed. At most the work of all of them, one after
    another, with as much stretch as was seen, and ``AMPLE``.
    """
    measured = [_kernels(probe) for probe in probes]
    found = [[_Work.of(kernel, sealed) for kernel in kernels] for kernels in measured if kernels]
    if not found or not sealed:
        return None
    least = span.of_samples([max(work.on_one_core_ns for work in works) for works in found])
    most = span.of_samples([sum(work.stretched_ns for work in works) for works in found])
    return Span(least.low, max(least.low, most.mid), AMPLE * most.high)


def reasons(probes: Iterable[ProbeRecord]) -> list[str]:
    """Why nothing was measured, each once."""
    made = [probe for probe in probes if isinstance(probe.probe, Cipher)]
    if any(probe.status is Status.OK for probe in made):
        return []
    return list(dict.fromkeys(probe.reason for probe in made if probe.reason))


def _kernels(probe: ProbeRecord) -> Sequence[KernelCipher]:
    figures = probe.figures
    return figures.kernels if probe.status is Status.OK and isinstance(figures, CipherFigures) else ()


class _Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one kernel has to do for one I/O.

    ``on_one_core_ns`` is what at least falls to one of its cores: all of it if there is but one, else the
    longest part, for one connection's packets are not encrypted on two at once.
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
