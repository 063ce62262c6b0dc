"""What ``harness predict`` prints: a table, and the same as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from harness.analysis.cpu_costs import WhichEnd
from harness.explain.predicted import PREDICTED, Ends, Predicted, PrintedPredicted


class PrintedPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """A predicted matrix: ``predicted`` is always true. ``target_cpu_costs`` and ``initiator_cpu_costs`` are
    names of CPU cost files, ``outside`` says which parts were never validated (``harness predict --score``),
    and which CPU costs come from a busy machine."""

    target_cpu_costs: str
    initiator_cpu_costs: str
    predicted: bool = True
    outside: tuple[str, ...] = ()
    cells: tuple[PrintedPredicted, ...] = ()


def _us(ns: float) -> str:
    """In us, three digits at least."""
    return f"{ns / 1000:.0f}" if ns >= 1e5 else f"{ns / 1000:.3g}"


def rows(found: Sequence[Predicted]) -> Iterator[list[str]]:
    """A line of a table for each."""
    for each in found:
        if (rate := each.rate_mb_s) is None:
            yield [each.name, each.workload, "n/a", "", "", each.why_not]
            continue
        parts = ", ".join(f"{name} {_us(ns)}" for name, ns in each.breakdown_ns.items() if ns >= 50)
        sources = (f"{name} {100 * part:.0f} %" for name, part in rate.made_of.items() if part >= 0.005)
        yield [
            each.name,
            each.workload,
            f"{rate.mid:.4g} ({rate.low:.4g} to {rate.high:.4g})",
            f"{each.limited_by}",
            parts,
            ", ".join(sources),
        ]


HEADINGS = (PREDICTED, "workload", "MB/s, 90 %", "limits", "us of an I/O", "sources of uncertainty")


def sentence(ends: Ends) -> str:
    """What stands above the table: that nothing of it was measured, and what it is from."""
    initiator = ends.initiator or ends.target
    one = WhichEnd.BOTH in ends.of_each()
    whose = f"the target's CPU costs of {ends.target.name}, the initiator's of {initiator.name}"
    return f"{PREDICTED}, not measured: calculated from " + (
        f"the CPU costs of {ends.target.name}, where one core has both ends" if one else whose
    )


def document(ends: Ends, found: Sequence[Predicted], outside: Sequence[str]) -> PrintedPrediction:
    """What ``harness predict --format json`` prints."""
    return PrintedPrediction(
        target_cpu_costs=ends.target.name,
        initiator_cpu_costs=(ends.initiator or ends.target).name,
        outside=tuple(outside),
        cells=tuple(map(PrintedPredicted.of, found)),
    )
