"""The core time that cipher and integrity check take for one I/O, from stand-alone measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.analysis import interval
from harness.analysis.interval import Interval
from harness.analysis.path_demands import Sealed
from harness.model import Status
from harness.model.probing import Cipher, CipherFigures, KernelCipher
from harness.results.probe_records import ProbeRecord

AMPLE = 1.25
"""ESP may take this many times AF_ALG's figure: for bare ACKs (6 % of a long read), for cold caches (at most
10 %, measured with caches emptied before each operation), and for data in several pieces."""


def work_ns(probes: Iterable[ProbeRecord], sealed: Sequence[Sealed]) -> Interval | None:
    """The core time of cipher and check for one I/O; None if nothing was measured.

    At least the undisturbed work of the core that has most of it. At most the work of all cores one after
    another, times the stretch that was seen, times ``AMPLE``.
    """
    measured = [_kernels(probe) for probe in probes]
    found = [[_parts(kernel, sealed) for kernel in kernels] for kernels in measured if kernels]
    if not found or not sealed:
        return None
    # A connection's packets are not encrypted on two cores at once: with several, the longest part is one's.
    on_one_core = (
        [sum(parts) if kernel.cores == 1 else max(parts) for kernel, parts in kernels] for kernels in found
    )
    least = interval.of_samples([max(each) for each in on_one_core])
    most = interval.of_samples([sum(sum(parts) * one.stretch for one, parts in kernels) for kernels in found])
    return Interval(least.low, max(least.low, most.mid), AMPLE * most.high)


def reasons(probes: Iterable[ProbeRecord]) -> list[str]:
    """Why nothing was measured, each reason once."""
    made = [probe for probe in probes if isinstance(probe.probe, Cipher)]
    if any(probe.status is Status.OK for probe in made):
        return []
    return list(dict.fromkeys(probe.reason for probe in made if probe.reason))


def _kernels(probe: ProbeRecord) -> Sequence[KernelCipher]:
    figures = probe.figures
    return figures.kernels if probe.status is Status.OK and isinstance(figures, CipherFigures) else ()


def _parts(kernel: KernelCipher, sealed: Sequence[Sealed]) -> tuple[KernelCipher, list[float]]:
    """How long one kernel encrypts or decrypts each part of one I/O, in ns."""
    return kernel, [
        part.packets * operation.each_packet_ns + part.bytes * operation.each_byte_ns
        for end in kernel.ends
        for part in sealed
        for operation in [kernel.encrypt if part.by == end else kernel.decrypt]
    ]
