"""What cipher and check take of a core for one I/O, by what they were measured to take by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.explain import span
from harness.explain.path import Sealed
from harness.explain.span import Span
from harness.model import Status
from harness.probes.kinds import Cipher
from harness.probes.records import CipherFigures, KernelCipher, OperationTime, ProbeRecord
from harness.theory import ENDS, End

AMPLE = 1.25
"""What ESP may take beyond AF_ALG's figure: for bare ACKs (6 % of a long read), with empty caches (10 % at
most, where they were emptied before each operation), of data in several pieces."""


def work_ns(probes: Iterable[ProbeRecord], sealed: Sequence[Sealed]) -> Span | None:
    """How long the core that has the most of it works for one I/O; None if nothing was measured.

    At least what the operations take undisturbed. At most with as much stretch as was seen, and ``AMPLE``.
    """
    measured = [_of_probe(probe, sealed) for probe in probes]
    found = [pair for pair in measured if pair is not None]
    if not found or not sealed:
        return None
    alone = span.of_samples([work for work, _ in found])
    stretched = span.of_samples([work * stretch for work, stretch in found])
    high = AMPLE * stretched.high
    return Span(alone.low, min(stretched.mid, high), high)


def reasons(probes: Iterable[ProbeRecord]) -> list[str]:
    """Why nothing was measured, each once."""
    made = [probe for probe in probes if isinstance(probe.probe, Cipher)]
    if any(probe.status is Status.OK for probe in made):
        return []
    return list(dict.fromkeys(probe.reason for probe in made if probe.reason))


def _of_probe(probe: ProbeRecord, sealed: Sequence[Sealed]) -> tuple[float, float] | None:
    """The work, and the stretch of the kernel that has most of it."""
    figures = probe.figures
    if probe.status is not Status.OK or not isinstance(figures, CipherFigures):
        return None
    return max((_of_kernel(kernel, sealed), kernel.stretch) for kernel in figures.kernels)


def _of_kernel(kernel: KernelCipher, sealed: Sequence[Sealed]) -> float:
    """What a core of this kernel has to do: all of its ends' work if there is but one, else the longest part,
    for the packets of one connection are not encrypted on two cores at once."""
    parts = []
    for end in ENDS:
        if end in kernel.ends:
            parts.append(sum(_time_ns(kernel.encrypt, part) for part in sealed if part.by == end))
            parts.append(sum(_time_ns(kernel.decrypt, part) for part in sealed if part.by == _peer(end)))
    return sum(parts) if kernel.processors == 1 else max(parts, default=0.0)


def _peer(end: End) -> End:
    return ENDS[1 - ENDS.index(end)]


def _time_ns(operations: tuple[OperationTime, OperationTime], part: Sealed) -> float:
    """All packets, on the line through the short and the long operation."""
    short, long = operations
    each_byte_ns = max(0.0, (long.ns - short.ns) / (long.bytes - short.bytes))
    each_packet_ns = max(0.0, short.ns - short.bytes * each_byte_ns)
    return part.packets * each_packet_ns + part.bytes * each_byte_ns
